"""Run a program for many items at once, with a progress bar; items that fail keep their place and say why.

Run it: python examples/batch.py [--url http://127.0.0.1:30000] [--limit N]
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import sgl

SENTENCES = Path(__file__).parent / "data" / "sentences.jsonl"


@sgl.function
def summarize(s, text):
    if not text:
        raise ValueError("an empty text")
    s += "Each review gets a title of two or three words.\n\n"
    s += "Review: The food was delicious and the waiter was kind.\nTitle: Delicious food\n\n"
    s += "Review: The phone stopped working after a week.\nTitle: Broken phone\n\n"
    s += f"Review: {text}\nTitle:"
    s += sgl.gen("title", stop="\n", max_tokens=10, temperature=0)


def run(console: Console, limit: int = 12) -> None:
    rows = [json.loads(line) for line in SENTENCES.read_text(encoding="utf-8").splitlines()][:limit]
    texts = [row["text"] for row in rows] + [""]
    # All items begin alike: that beginning is computed once.
    results = summarize.run_batch([{"text": text} for text in texts], on_error="collect", progress_bar=True)

    table = Table("review", "title", title="A batch")
    for text, result in zip(texts, results, strict=True):
        if isinstance(result, sgl.BatchFailure):
            table.add_row(text, f"[red]item {result.index} failed: {escape(str(result.error))}[/]")
        else:
            table.add_row(text, escape(result["title"].strip()))
    console.print(table)
    usages = [result.usage() for result in results if not isinstance(result, sgl.BatchFailure)]
    cached, prompt = sum(usage.cached_tokens for usage in usages), sum(usage.prompt_tokens for usage in usages)
    console.print(f"{cached} of {prompt} prompt tokens were found in the cache.", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a program for many items at once.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    parser.add_argument("--limit", type=int, choices=range(1, 21), default=12, metavar="N", help="how many reviews")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console(), options.limit)


if __name__ == "__main__":
    main()
