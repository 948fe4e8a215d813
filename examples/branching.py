"""Ask four questions about one article at the same time, then go on from all four answers.

The four branches of the fork share the article in the cache: each of them computes only its own question and answer.
The small model answers well for some articles (lighthouse is the default) and badly for others (try telescope).

Run it: python examples/branching.py [--url http://127.0.0.1:30000] [--article lighthouse]
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import sgl

FILE = Path(__file__).parent / "data" / "articles.jsonl"
ARTICLES = {row["id"]: row["text"] for row in map(json.loads, FILE.read_text(encoding="utf-8").splitlines())}
QUESTIONS = ["Who is the main person?", "Where does it happen?", "What happened?", "Why is this interesting?"]


@sgl.function
def ask_all(s, text):
    s += f"{text}\n\n"
    branches = s.fork(len(QUESTIONS))
    for branch, question in zip(branches, QUESTIONS, strict=True):
        branch += f"Question: {question}\nAnswer (one sentence):"
        branch += sgl.gen("answer", max_tokens=40, stop="\n", temperature=0)
    branches.join()
    # Joining made a list of each variable of the branches: s["answer"] has one answer for each question.
    for answer in s["answer"]:
        s += f"Note:{answer}\n"
    s += "Headline:"
    s += sgl.gen("headline", max_tokens=24, stop="\n", temperature=0)


def run(console: Console, article_id: str = "lighthouse") -> None:
    state = ask_all.run(ARTICLES[article_id])

    table = Table(title=f"Four branches from one prefix (article: {article_id})")
    table.add_column("question")
    table.add_column("answer")
    for column in ("prompt tokens", "from cache"):
        table.add_column(column, justify="right")
    metas = state.get_meta_info("answer")["branches"]
    for question, answer, meta in zip(QUESTIONS, state["answer"], metas, strict=True):
        table.add_row(question, escape(answer.strip()), str(meta["prompt_tokens"]), str(meta["cached_tokens"]))
    console.print(table)
    prompt, cached = (sum(meta[key] for meta in metas) for key in ("prompt_tokens", "cached_tokens"))
    console.print(
        f"{cached} of {prompt} prompt tokens ({cached / prompt:.0%}) were found in the cache, not computed again.",
        highlight=False,
    )
    console.print(
        "Headline, from the article and the four answers:", escape(state["headline"].strip()), highlight=False
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask four questions about one article at the same time.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    parser.add_argument("--article", choices=ARTICLES, default="lighthouse", help="which article to ask about")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console(), options.article)


if __name__ == "__main__":
    main()
