"""Process 3: which requests run together, and what a pass did to them."""
