"""Read facts out of ten short articles as JSON that always fits its schema.

The schema is made for each article: persons, places and years can only be words that stand in its text, so the model
can pick the wrong ones but cannot invent any.  (The year is easy: few numbers in a text look like one.)

Run it: python examples/json_extraction.py [--url http://127.0.0.1:30000] [--limit N]
"""

import argparse
import json
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import sgl

ARTICLES = Path(__file__).parent / "data" / "articles.jsonl"
CHECKED = ("person", "place", "year")


def facts_in(text: str) -> type[BaseModel]:
    """The model class whose instances are possible facts of this text."""
    names = tuple(dict.fromkeys(re.findall(r"[A-Z]\w+(?: [A-Z]\w+)*", text)))
    years = tuple(int(digits) for digits in dict.fromkeys(re.findall(r"\b[0-9]{3,4}\b", text)))

    class Facts(BaseModel):
        title: str = Field(min_length=8, max_length=60)
        person: Literal[names]
        place: Literal[names]
        year: Literal[years]

    return Facts


@sgl.function
def extract(s, text):
    s += f"Article:\n{text}\n\nFacts from the article (title, person, place, year):\n"
    s += sgl.gen("facts", json_schema=facts_in(text), max_tokens=256, temperature=0)


def run(console: Console, limit: int = 10) -> None:
    articles = [json.loads(line) for line in ARTICLES.read_text(encoding="utf-8").splitlines()][:limit]
    console.print(f"The first article, as the model writes it ({articles[0]['id']}):")
    first = extract.run(articles[0]["text"], stream=True)
    for piece in first.text_iter("facts"):
        console.print(piece, end="", style="cyan", markup=False, highlight=False, soft_wrap=True)
    console.print("\n")

    states = [first, *extract.run_batch([{"text": article["text"]} for article in articles[1:]])]
    headers = ("article", "title (by the model)", *CHECKED)
    table = Table(*headers, title="What the model read in each article", caption="* differs from the label")
    num_right = 0
    for article, state in zip(articles, states, strict=True):
        facts = facts_in(article["text"]).model_validate_json(state["facts"]).model_dump()
        wrong = {name for name in CHECKED if facts[name] != article["expected"][name]}
        num_right += len(CHECKED) - len(wrong)
        cells = [f"[red]{facts[name]} *[/]" if name in wrong else str(facts[name]) for name in CHECKED]
        table.add_row(article["id"], escape(facts["title"]), *cells)
    console.print(table)
    agree = f"{num_right} of {len(CHECKED) * len(states)} facts agree with the labels."
    console.print(f"All {len(states)} outputs fit their schema; {agree}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Read facts out of ten short articles as JSON.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    parser.add_argument("--limit", type=int, choices=range(1, 11), default=10, metavar="N", help="how many articles")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console(), options.limit)


if __name__ == "__main__":
    main()
