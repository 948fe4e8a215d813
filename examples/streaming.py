"""Show text while it is written: piece by piece, and an object whose fields come one after another.

Run it: python examples/streaming.py [--url http://127.0.0.1:30000] [--topic lighthouses]
"""

import argparse
from typing import Annotated

from pydantic import BaseModel, Field
from rich.console import Console

import sgl


class Card(BaseModel):
    """What the model writes at the end."""

    title: str = Field(max_length=30)
    keywords: list[Annotated[str, Field(max_length=16)]] = Field(min_length=2, max_length=3)
    is_old: bool


@sgl.function
def describe(s, topic):
    s += sgl.user(f"Write two sentences about {topic}.")
    with s.assistant():
        s += sgl.gen("text", max_tokens=60, temperature=0)
    s += sgl.user("Now a card with title and keywords, as JSON.")
    with s.assistant():
        s += sgl.gen("card", type=Card, max_tokens=120, temperature=0)


def run(console: Console, topic: str = "lighthouses") -> None:
    # The program runs beside us: the state is here at once, and grows.
    state = describe.run(topic, stream=True)
    for piece in state.text_iter("text"):
        console.print(piece, end="", style="cyan", markup=False, highlight=False, soft_wrap=True)
    console.print("\n")
    # Until the object is complete and checked there are partial ones, of another type.
    num_fields = 0
    for part in state.partial_iter("card"):
        if isinstance(part, sgl.Partial) and len(part.data) > num_fields:
            num_fields = len(part.data)
            console.print(f"so far: {part.data}", markup=False, highlight=False)
    console.print(f"whole:  {part!r}", markup=False, highlight=False)
    console.print(f"\n{state.usage().completion_tokens} tokens were generated.", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show text while it is written.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    parser.add_argument("--topic", default="lighthouses", help="what to write about")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console(), options.topic)


if __name__ == "__main__":
    main()
