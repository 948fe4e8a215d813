"""Label sentences as positive or negative with select, and count how often that is right.

All sentences share a prefix of four labelled ones, which is computed once and then found in the cache.

Run it: python examples/select_labels.py [--url http://127.0.0.1:30000] [--limit N]
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

import sgl

SENTENCES = Path(__file__).parent / "data" / "sentences.jsonl"
LABELS = ["positive", "negative"]
SHOWN = [
    ("The food was delicious and the waiter was kind.", "positive"),
    ("The phone stopped working after a week.", "negative"),
    ("The seats were dirty and the show was boring.", "negative"),
    ("I would gladly go there again.", "positive"),
]


@sgl.function
def classify(s, text):
    for sentence, label in SHOWN:
        s += f"Sentence: {sentence}\nThe sentence is {label}.\n\n"
    s += f"Sentence: {text}\nThe sentence is "
    # Both labels are one token here, so all three methods of select pick the same.
    s += sgl.select("label", LABELS)


def run(console: Console, limit: int = 20) -> None:
    rows = [json.loads(line) for line in SENTENCES.read_text(encoding="utf-8").splitlines()][:limit]
    states = classify.run_batch([{"text": row["text"]} for row in rows])

    table = Table(title="Positive or negative?", caption="* differs from the label")
    table.add_column("sentence")
    table.add_column("model says")
    table.add_column("sure", justify="right")
    num_right = 0
    for row, state in zip(rows, states, strict=True):
        is_right = state["label"] == row["label"]
        num_right += is_right
        probability = max(state.get_meta_info("label")["probabilities"])
        pick = state["label"] if is_right else f"[red]{state['label']} *[/]"
        table.add_row(row["text"], pick, f"{probability:.0%}")
    console.print(table)
    accuracy = num_right / len(rows)
    console.print(f"Accuracy: {num_right} of {len(rows)} ({accuracy:.0%}); guessing gives 50%.", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Label sentences as positive or negative.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    parser.add_argument("--limit", type=int, choices=range(1, 21), default=20, metavar="N", help="how many sentences")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console(), options.limit)


if __name__ == "__main__":
    main()
