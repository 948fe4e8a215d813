"""Build hook: puts modules that are compiled to machine code into the package.

It runs wherever pip installs the package.  Where they cannot be compiled (there is no C compiler, say), the package
works from its sources, and JSON Schemas take longer to compile.  SGL_NATIVE in the environment decides otherwise: 0
leaves the modules out, and with 1 an installation fails without them.
"""

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ROOT = Path(__file__).resolve().parent
_PACKAGE = _ROOT / "runtime" / "sgl_runtime"
sys.path[:0] = [str(_ROOT), str(_ROOT / "runtime")]
from sgl_runtime.native_modules import FOLDER, fits  # noqa: E402


class NativeModules(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Adds the compiled modules to a wheel, or puts them beside the sources for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the wheel is put together."""
        wish = os.environ.get("SGL_NATIVE")
        beside = _PACKAGE / FOLDER
        if wish == "0":
            if version == "editable":
                shutil.rmtree(beside, ignore_errors=True)
            return
        if version == "editable" and fits(_PACKAGE, beside):
            return
        self._made = TemporaryDirectory()
        made = Path(self._made.name, FOLDER)
        try:
            # Here, so that what it needs may be missing, too.
            from native_build import compile_modules

            compile_modules(made)
        except (Exception, SystemExit) as error:
            if wish == "1":
                raise
            self.app.display_warning(f"JSON Schemas will take longer to compile, because this failed: {error}")
            return
        if version == "editable":
            shutil.rmtree(beside, ignore_errors=True)
            shutil.copytree(made, beside)
        else:
            build_data["force_include"][str(made)] = f"sgl_runtime/{FOLDER}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clean up, when the wheel is there."""
        if hasattr(self, "_made"):
            self._made.cleanup()
