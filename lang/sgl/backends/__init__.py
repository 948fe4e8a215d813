"""Where the calls of programs go: one module for each backend, `base.Backend` is what they share."""
