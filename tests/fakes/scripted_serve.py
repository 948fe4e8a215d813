"""`sgl serve` with a scripted scheduler: the real processes, without a model."""

import sys

from fakes.scripted_composition import SCRIPTED
from sgl_runtime.serving.launch import serve
from sgl_runtime.start_options import parse_options

if __name__ == "__main__":
    sys.exit(serve(parse_options("sgl serve", sys.argv[1:]), SCRIPTED))
