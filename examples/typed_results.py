"""Get values of Python types: numbers, dates, enums, dataclasses.  The output always fits; only a limit can cut it.

The small model fits every type, and is often wrong about the world.

Run it: python examples/typed_results.py [--url http://127.0.0.1:30000]
"""

import argparse
import datetime
import enum
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import sgl


class Mood(enum.Enum):
    """One of three."""

    GLAD = "glad"
    CALM = "calm"
    ANGRY = "angry"


@dataclass
class Ship:
    """A ship of the sea."""

    name: Annotated[str, Field(max_length=20)]
    year: Annotated[int, Field(ge=1400, le=2100)]
    crew: Annotated[list[Literal["captain", "cook", "sailor"]], Field(min_length=1, max_length=3)]


QUESTIONS = [
    ("Is water wet?", bool),
    ("The mood of a cat that just woke up:", Mood),
    ("The first day of the year 2000:", datetime.date),
    ("One of these days:", Literal["Monday", "Friday"]),
    ("A ship of the sea, as JSON:", Ship),
]


@sgl.function
def answer(s, question, wanted, limit=120):
    s += f"{question} " + sgl.gen("value", type=wanted, max_tokens=limit, temperature=0)


def run(console: Console) -> None:
    table = Table("question", "type", "value", title="Outputs as values of Python types")
    states = answer.run_batch(QUESTIONS)
    for (question, wanted), state in zip(QUESTIONS, states, strict=True):
        table.add_row(question, escape(str(wanted)), escape(repr(state["value"])))
    console.print(table)

    cut = answer.run(*QUESTIONS[-1], limit=5)
    try:
        cut["value"]
    except sgl.TruncatedError as error:
        console.print(f"With 5 tokens only, reading it raises: {error}", markup=False, highlight=False)
        console.print(f"The text as far as it came: {cut.get('value', str)!r}", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Get values of Python types.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console())


if __name__ == "__main__":
    main()
