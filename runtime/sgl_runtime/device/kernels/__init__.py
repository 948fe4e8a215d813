"""Triton kernels, each with a plain twin that is its oracle."""
