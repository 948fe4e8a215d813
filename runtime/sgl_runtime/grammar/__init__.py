"""Which tokens may come next: front ends, automata, token masks and the compiler that ties them together."""

from sgl_runtime.native_modules import native_folders

__path__[:0] = native_folders("grammar")
