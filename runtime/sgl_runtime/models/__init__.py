"""One page for each family of models."""
