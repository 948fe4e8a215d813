"""`sgl demo`: the example programs on a model in this process, and what they cost."""
