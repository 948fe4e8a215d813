"""See what the model saw: record a program with branches, and write a page with its timeline, texts and probabilities.

Run it: python examples/recording.py [--url http://127.0.0.1:30000] [--page recording.html]
"""

import argparse
from pathlib import Path

from rich.console import Console

import sgl


@sgl.function
def plan(s, goal):
    s += sgl.system("You give short advice.")
    s += sgl.user(f"How do I {goal}?")
    with s.assistant():
        s += "Two ways:\n"
        branches = s.fork(2)
        for number, branch in enumerate(branches, 1):
            branch += (
                f"{number}." + sgl.gen("way", max_tokens=24, stop="\n", temperature=0.7, return_logprob=True) + "\n"
            )
        branches.join("concatenate")
        s += "The better one is number " + sgl.select("pick", ["1", "2"]) + "."


def run(console: Console, page: Path | None = None) -> None:
    with sgl.record() as recording:
        state = plan.run("learn to sail", seed=1)
        console.print(state.text(), markup=False, highlight=False)
    for run_record in recording.to_dict()["runs"]:
        for record in run_record["states"]:
            calls = [node for node in record["nodes"] if node["kind"] in ("gen", "select")]
            for node in calls:
                counts = node["counts"]
                console.print(
                    f"state {record['index']}: {node['kind']} {node['name']!r}, {counts['prompt_tokens']} tokens in, "
                    f"{counts['cached_tokens']} of them cached, {counts['completion_tokens']} out",
                    highlight=False,
                )
    if page is not None:
        recording.html(page)
        console.print(f"Open {page} in a browser.", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record a program and write the page that shows it.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    parser.add_argument("--page", type=Path, default=Path("recording.html"), help="file for the page")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console(), options.page)


if __name__ == "__main__":
    main()
