"""Front end of `json_schema`: one module for each kind of value."""

from sgl_runtime.native_modules import native_folders

__path__[:0] = native_folders("grammar/json_schema")
