"""What an example program prints when it runs in this process."""

from rich.console import Console

from sgl_runtime.demo.example_programs import examples_folder, load_example


def printed_by(name: str, *arguments: object) -> str:
    """The output of `run` of an example."""
    console = Console(width=120)
    with console.capture() as capture:
        load_example(examples_folder(), name).run(console, *arguments)
    return capture.get()
