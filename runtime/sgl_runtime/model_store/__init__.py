"""Where a model lies on disk and what its files say; torch-free, used by the host and the device half."""
