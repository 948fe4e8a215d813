"""Build programs out of programs: inline calls, copies, captured text, a trace, and going on after a run.

Run it: python examples/composition.py [--url http://127.0.0.1:30000]
"""

import argparse

from rich.console import Console

import sgl


@sgl.function
def line(s, speaker, limit=20):
    """A part of a play: goes on in the state of its caller, with variables of its own."""
    s += f"{speaker}:" + sgl.gen("words", max_tokens=limit, stop="\n", temperature=0.8) + "\n"
    return s["words"].strip()


@sgl.function
def scene(s, place):
    s += f"A short scene in {place}, between Ada and Ben.\n"
    with s.var_scope("dialogue"):
        spoken = [line(s, speaker) for speaker in ("Ada", "Ben", "Ada")]
    with s.copy() as critic:
        # A branch that judges; the scene itself goes on as if it had not been there.
        critic += "\nIs the scene funny or sad? It is" + sgl.select("mood", [" funny", " sad"])
    return spoken


@sgl.function
def ending(s):
    s += "The end: " + sgl.gen("end", max_tokens=16, stop="\n", temperature=0.8, post=str.strip)


def run(console: Console) -> None:
    short = line.bind(limit=8)
    console.print("What a line appends, found without a model:", style="bold", highlight=False)
    console.print(str(short.trace(speaker="Ada")), markup=False, highlight=False)
    console.print(f"Tokens that all scenes begin with: {scene.cache()}", style="bold", highlight=False)
    state = scene.run("a lighthouse", seed=5)
    console.print(f"\n{state['dialogue']}", markup=False, highlight=False)
    console.print(f"{len(state.ret_value)} lines; the branch found it{state['mood'][0]}.", highlight=False)
    # A state goes on after its run: another program, inline.
    ending(state)
    console.print(state.text().splitlines()[-1], markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build programs out of programs.")
    parser.add_argument("--url", help="address of a running server; by default the model runs in this process")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(options.url) if options.url else sgl.Engine(model_path="smollm2"))
    run(Console())


if __name__ == "__main__":
    main()
