"""Let the model call Python functions: arguments are constrained by their signatures, and arrive typed.

The small model always writes calls that fit, and not always those that one would want.

Run it: python examples/tools.py [--url http://127.0.0.1:30000]
"""

import argparse
from typing import Annotated, Literal

from pydantic import Field
from rich.console import Console

import sgl

TEMPERATURES = {"Oslo": 4, "Cairo": 31, "Lima": 19}
City = Literal["Oslo", "Cairo", "Lima"]


def temperature_in(city: City) -> int:
    """Today's temperature in degrees Celsius."""
    return TEMPERATURES[city]


def warmest_of(cities: Annotated[list[City], Field(min_length=2, max_length=3)]) -> str:
    """The warmest of some cities."""
    return max(cities, key=TEMPERATURES.__getitem__)


@sgl.function
def ask(s, question, tools, wanted):
    s += sgl.system(sgl.describe_tools(tools))
    s += sgl.user(question)
    with s.assistant():
        # Some models call tools of themselves (tool_choice="auto"); a small one must.
        s += sgl.gen("calls", tools=tools, tool_choice="required", run_tools=True, max_tokens=100, temperature=0)
        s += "The answer is " + sgl.gen("answer", type=wanted, max_tokens=8, temperature=0)


def run(console: Console) -> None:
    for question, tools, wanted in (
        ("How warm is it in Cairo?", [temperature_in], Annotated[int, Field(ge=-60, le=60)]),
        ("Where is it warmer, Oslo or Lima?", [warmest_of], City),
    ):
        state = ask.run(question, tools, wanted)
        console.print(question, style="bold", highlight=False)
        for call in state["calls"]:
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            console.print(f"  {call.name}({arguments}) -> {call.result!r}", markup=False, highlight=False)
        console.print(f"  The answer is {state['answer']!r}.", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Let the model call Python functions.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console())


if __name__ == "__main__":
    main()
