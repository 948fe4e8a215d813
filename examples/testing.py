"""Test a program without a model: a script answers, and keeps what it was asked.

Run it: python examples/testing.py [--url http://127.0.0.1:30000]

With an address the same program runs on a server, after its tests.
"""

import argparse

from rich.console import Console

import sgl


@sgl.function
def triage(s, mail):
    s += sgl.system("You sort mail.")
    s += sgl.user(mail)
    with s.assistant():
        s += "Urgent: " + sgl.select("urgent", ["yes", "no"])
        if s["urgent"] == "yes":
            s += "\nReply: " + sgl.gen("reply", max_tokens=20, stop="\n")


def check_urgent_mail_gets_a_reply() -> None:
    backend = sgl.ScriptedBackend(
        "We are on our way.",
        logprob=lambda context, token: 0.0 if context.endswith("Urgent: ") and token == "y" else -1.0,
    )
    state = triage.run("The roof leaks!", backend=backend)
    assert (state["urgent"], state["reply"]) == ("yes", "We are on our way.")
    assert backend.model.calls[-1].sampling["max_new_tokens"] == 20
    assert "The roof leaks!" in backend.model.calls[-1].prompt


def check_other_mail_costs_no_generation() -> None:
    def likely(context: str, token: str) -> float:
        return 0.0 if token in "no" else -5.0

    state = triage.run("Our new catalogue", backend=sgl.ScriptedBackend(logprob=likely))
    assert (state["urgent"], state.variables()) == ("no", ["urgent"])


def check_a_broken_server_is_an_error_with_its_place() -> None:
    def broken(call: object) -> None:
        raise ConnectionResetError("the wire is cut")

    error = triage.run("Hello", stream=True, backend=sgl.ScriptedBackend(before=broken)).error()
    assert isinstance(error, sgl.ProgramError)
    assert (error.program, error.variable) == ("triage", "urgent")


CHECKS = (
    check_urgent_mail_gets_a_reply,
    check_other_mail_costs_no_generation,
    check_a_broken_server_is_an_error_with_its_place,
)


def run(console: Console) -> None:
    for check in CHECKS:
        check()
        console.print(f"passed: {check.__name__.removeprefix('check_').replace('_', ' ')}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Test a program without a model.")
    parser.add_argument("--url", help="address of a running server, for one run after the tests")
    options = parser.parse_args()
    console = Console()
    run(console)
    if options.url:
        state = triage.run("The roof leaks!", backend=sgl.RuntimeEndpoint(options.url))
        console.print(state.text(), markup=False, highlight=False)


if __name__ == "__main__":
    main()
