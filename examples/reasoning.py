"""Tell a model's thinking from its answer: both are variables, and the type of the answer is for the answer alone.

A server says how its model marks its thinking (`sgl serve --reasoning-parser qwen3`).  The small model is no reasoning
model, so the marks are named here; it thinks as it can.

Run it: python examples/reasoning.py [--url http://127.0.0.1:30000]
"""

import argparse
from typing import Annotated

from pydantic import Field
from rich.console import Console

import sgl

QUESTIONS = ["A train has 4 cars with 3 seats each. How many seats?", "I have 9 apples and eat 2. How many are left?"]


@sgl.function
def solve(s, question):
    s += sgl.user(question)
    answer = sgl.gen("answer", type=Annotated[int, Field(ge=0, le=99)], max_tokens=8, temperature=0)
    s += sgl.assistant(sgl.separate_reasoning(answer, model_type="qwen3", max_thinking_tokens=48))
    # What was thought is not part of the message: the next one does not see it.
    s += sgl.user("Is that an even number?")
    s += sgl.assistant(sgl.gen("is_even", type=bool, temperature=0))


def run(console: Console) -> None:
    for question in QUESTIONS:
        console.print(question, style="bold", highlight=False)
        state = solve.run(question, stream=True)
        thinking = "".join(state.text_iter("answer_reasoning_content"))
        console.print(f"  thought: {' '.join(thinking.split())[:160]}", markup=False, highlight=False)
        console.print(f"  answer: {state['answer']!r}, even: {state['is_even']!r}", markup=False, highlight=False)
        contents = [message["content"] for message in state.messages()]
        console.print(f"  messages: {contents}", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tell a model's thinking from its answer.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console())


if __name__ == "__main__":
    main()
