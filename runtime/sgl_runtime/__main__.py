"""`python -m sgl_runtime` is the command `sgl`."""

import sys

from sgl_runtime.cli import main

# Children are started by `spawn`, which imports this module again under another name.
if __name__ == "__main__":
    sys.exit(main())
