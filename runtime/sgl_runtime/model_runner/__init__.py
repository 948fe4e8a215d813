"""One rank: a Batch in, tokens out."""
