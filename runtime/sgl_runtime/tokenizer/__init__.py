"""Ids and bytes: the served tokenizer, its vocabulary and its chat template.  Torch-free."""
