"""`sgl bench serve`: load for a running server, and what its clients see of it."""
