"""The tensors of one pass."""
