"""Finds and loads the example programs that `sgl demo` runs."""

from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Protocol

from rich.console import Console

from sgl_runtime.errors import SglRuntimeError

# An installed distribution carries the folder `examples` of the checkout beside this file (see pyproject.toml); in a
# checkout it is where people look for it.
_PACKAGED = Path(__file__).parent / "examples"
_CHECKOUT = Path(__file__).parents[3] / "examples"


class ExampleProgram(Protocol):
    """A loaded example."""

    def run(self, console: Console) -> None:
        """Run it on the default backend and print what came of it."""


@dataclass(frozen=True)
class Example:
    """One of the programs.

    Attributes:
        name: Name of its file, without the ending.
        title: Heading above its output.
        lesson: What to look at, in a sentence.
    """

    name: str
    title: str
    lesson: str


EXAMPLES = (
    Example(
        "json_extraction",
        "JSON extraction",
        "Ten articles become JSON.  Decoding cannot leave the schema, which allows only names in the article.",
    ),
    Example(
        "branching",
        "Branching",
        "Four questions about one article, at the same time.  The branches share what is computed of it.",
    ),
    Example(
        "select_labels",
        "Choosing",
        "Twenty sentences get a label by comparing the probabilities of two words.  Nothing is generated.",
    ),
)


def examples_folder() -> Path:
    """The folder with the example programs.

    Raises:
        SglRuntimeError: neither this installation nor a checkout has it.
    """
    for folder in (_PACKAGED, _CHECKOUT):
        if (folder / f"{EXAMPLES[0].name}.py").is_file():
            return folder
    raise SglRuntimeError(f"no example programs in {_PACKAGED}; install sgl again")


def load_example(folder: Path, name: str) -> ExampleProgram:
    """Import an example from its file, as it stands.

    Args:
        folder: From `examples_folder`.
        name: Name of the file, without the ending.

    Raises:
        SglRuntimeError: there is no such file.
    """
    path = folder / f"{name}.py"
    if not path.is_file():
        raise SglRuntimeError(f"example program {path} does not exist")
    spec = spec_from_file_location(f"sgl_demo_{name}", path)
    assert spec is not None, f"{path} ends in .py"
    assert spec.loader is not None, f"{path} is no namespace"
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    program: ExampleProgram = module
    return program
