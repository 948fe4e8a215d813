"""Say how a model samples: several outputs, seeds, stops, constraints, and the probabilities of its tokens.

Run it: python examples/sampling.py [--url http://127.0.0.1:30000]
"""

import argparse
import math

from rich.console import Console

import sgl


@sgl.function
def names(s, count):
    s += 'Her grandfather called his small boat "' + sgl.gen("names", n=count, max_tokens=8, stop=['"', ","])


@sgl.function
def code(s):
    s += "The code of the door is " + sgl.gen("code", regex="[A-Z]{2}-[0-9]{3}", temperature=1.2) + "."
    s += " It was set in the year " + sgl.gen("year", dtype=int, max_tokens=4)


@sgl.function
def sky(s):
    s += "On a clear day the color of the sky is" + sgl.gen("color", max_tokens=1, temperature=0, top_logprobs_num=3)


def run(console: Console) -> None:
    for seed in (1, 1, 2):
        state = names.run(3, seed=seed)
        console.print(f"seed {seed}: {[name.strip() for name in state['names']]}", markup=False, highlight=False)
    state = code.run(seed=3)
    console.print(state.text(), markup=False, highlight=False)
    state = sky.run()
    console.print(f"The color is{state['color']}; the likeliest tokens:", markup=False, highlight=False)
    for logprob, _, token in state.get_meta_info("color")["output_top_logprobs"][0]:
        console.print(f"  {token!r}: {math.exp(logprob):.0%}", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Say how a model samples.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console())


if __name__ == "__main__":
    main()
