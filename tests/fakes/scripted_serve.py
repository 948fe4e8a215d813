"""`sgl serve` with a scripted scheduler: the real processes, without a model."""

import sys

from fakes.scripted_composition import SCRIPTED
from sgl_runtime.config_flags import parse_flags
from sgl_runtime.serving.launch import serve

if __name__ == "__main__":
    sys.exit(serve(parse_flags("sgl serve", sys.argv[1:]), SCRIPTED))
