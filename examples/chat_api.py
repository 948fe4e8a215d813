"""Run programs on a server that speaks OpenAI's API, and let one call serve several gens.

Where calls are billed one by one, `num_api_spec_tokens` asks for more than the first gen wants; the text behind it
serves the gens that follow, as long as it says what the program says.

Run it: python examples/chat_api.py [--url http://127.0.0.1:30000] [--model smollm2]

Without an address a script plays the server.
"""

import argparse
from typing import Any

from rich.console import Console

import sgl

EXAMPLE = "Name: Bo\nJob: baker\nTown: Rome\n"


@sgl.function(num_api_spec_tokens=32)
def invent(s):
    s += f"People, three lines each.\n\n{EXAMPLE}\nName:" + sgl.gen("name", stop="\n", max_tokens=12)
    for field in ("job", "town"):
        s += f"\n{field.capitalize()}:" + sgl.gen(field, stop="\n", max_tokens=12)


@sgl.function
def advise(s, topic):
    s += sgl.system("Answer in one sentence.")
    s += sgl.user(f"A word of advice on {topic}, please.")
    s += sgl.assistant(sgl.gen("advice", max_tokens=32))


def run(console: Console, completion: Any, chat: Any) -> None:
    state = invent.run(backend=completion, temperature=0.0)
    for field in ("name", "job", "town"):
        meta = state.get_meta_info(field)
        origin = "from the call before" if meta.get("is_speculated") else f"{meta['prompt_tokens']} prompt tokens"
        console.print(f"{field}: {state[field].strip()!r} ({origin})", markup=False, highlight=False)
    console.print(f"calls: {state.usage().num_calls}", highlight=False)
    for result in advise.run_batch([("sailing",), ("baking",)], backend=chat, max_new_tokens=32):
        console.print(f"advice: {result['advice'].strip()}", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run programs on a server that speaks OpenAI's API.")
    parser.add_argument("--url", help="address of a running server, without /v1; by default a script answers")
    parser.add_argument("--model", default="smollm2", help="the server's name of its model")
    options = parser.parse_args()
    if options.url:
        completion, chat = (
            sgl.OpenAI(options.model, is_chat, base_url=f"{options.url}/v1") for is_chat in (False, True)
        )
        run(Console(), completion, chat)
    else:
        run(Console(), sgl.ScriptedBackend([" Ann", " pilot", " Oslo"]), sgl.ScriptedBackend("Begin early."))


if __name__ == "__main__":
    main()
