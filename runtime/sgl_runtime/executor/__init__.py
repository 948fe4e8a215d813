"""The seam between host and device."""
