"""Hold several conversations at the same time, as an async server would, without a thread for any of them.

Each is an `async def` program: it awaits what it reads, and its requests join the same batches as those of the others.

Run it: python examples/async_chat.py [--url http://127.0.0.1:30000]
"""

import argparse
import asyncio
import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import sgl

GUESTS = {
    "Ada": ["Name a color.", "What is it the color of?"],
    "Ben": ["Name an animal.", "Where does it live?"],
    "Cem": ["Name a city.", "In which country is it?"],
    "Dia": ["Name a fruit.", "How does it taste?"],
}


@sgl.function
async def chat(s, questions):
    s += sgl.system("Answer in a few words.")
    for number, question in enumerate(questions):
        s += sgl.user(question)
        s += sgl.assistant(sgl.gen(f"answer{number}", max_tokens=16, temperature=0))
        # The next question could depend on the answer; here it is only waited for.
        await s[f"answer{number}"]
    return [await s[f"answer{number}"] for number in range(len(questions))]


async def talk_to_all() -> list[list[str]]:
    states = await asyncio.gather(*(chat.arun(questions) for questions in GUESTS.values()))
    return [state.ret_value for state in states]


def run(console: Console) -> None:
    begin = time.monotonic()
    everything = asyncio.run(talk_to_all())
    seconds = time.monotonic() - begin
    table = Table("guest", "question", "answer", title="Conversations at the same time")
    for (guest, questions), answers in zip(GUESTS.items(), everything, strict=True):
        for question, answer in zip(questions, answers, strict=True):
            table.add_row(guest, question, escape(answer.strip()))
    console.print(table)
    console.print(f"{len(GUESTS)} conversations of {len(questions)} turns in {seconds:.1f} s.", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold several conversations at the same time.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console())


if __name__ == "__main__":
    main()
