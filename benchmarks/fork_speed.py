"""A fork of four branches beside the same four requests one after another without a cache, on the small real model.

    python benchmarks/fork_speed.py [--runs 5] [--prefix-tokens 512] [--new-tokens 32]

Both sides run on one engine in this process, in turn; the cache is flushed before every fork and before every single
request.  Greedy, end of sequence ignored, so both sides generate as many tokens; prefixes differ from run to run.
"""

import argparse
import platform
import statistics
import sys
import time

import sgl

QUESTIONS = ["Who is it about?", "Where does it happen?", "What happened?", "Why is this interesting?"]
TARGET = 2.0


def answer(question: str, num_tokens: int):
    return f"\nQuestion: {question}\nAnswer:" + sgl.gen("v", max_tokens=num_tokens, temperature=0, ignore_eos=True)


@sgl.function
def forked(s, text, num_tokens):
    s += text
    branches = s.fork(len(QUESTIONS))
    for branch, question in zip(branches, QUESTIONS, strict=True):
        branch += answer(question, num_tokens)
    branches.join()


@sgl.function
def single(s, text, question, num_tokens):
    s += text
    s += answer(question, num_tokens)


def fork_seconds(engine: sgl.Engine, text: str, num_tokens: int) -> tuple[float, list[str]]:
    sgl.flush_cache(engine)
    begin = time.perf_counter()
    answers = forked.run(text, num_tokens, backend=engine)["v"]
    return time.perf_counter() - begin, answers


def one_by_one_seconds(engine: sgl.Engine, text: str, num_tokens: int) -> tuple[float, list[str]]:
    total, answers = 0.0, []
    for question in QUESTIONS:
        sgl.flush_cache(engine)
        begin = time.perf_counter()
        answers.append(single.run(text, question, num_tokens, backend=engine)["v"])
        total += time.perf_counter() - begin
    return total, answers


def prefix(number: int, num_tokens: int) -> str:
    """A text of about so many tokens that no other run begins with."""
    sentence = "The keeper of the lighthouse wrote down the weather and the ships that passed. "
    return f"Report {number} of the year.\n" + sentence * (num_tokens // 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted turns (default 5)")
    parser.add_argument("--prefix-tokens", type=int, default=512, help="tokens that the branches share, about")
    parser.add_argument("--new-tokens", type=int, default=32, help="tokens that each branch generates")
    arguments = parser.parse_args()
    print(f"python={platform.python_version()} machine={platform.machine()} sgl={sgl.__version__}")
    forks, singles = [], []
    with sgl.Engine(model_path="smollm2", max_total_tokens=8192) as engine:
        for number in range(arguments.runs + 1):
            text = prefix(number, arguments.prefix_tokens)
            fork_s, fork_answers = fork_seconds(engine, text, arguments.new_tokens)
            single_s, single_answers = one_by_one_seconds(engine, text, arguments.new_tokens)
            same = sum(one == other for one, other in zip(fork_answers, single_answers, strict=True))
            # The first turn warms up and is not counted.
            label = f"turn {number}" if number else "warm-up"
            print(
                f"{label:8s} fork {fork_s:5.2f} s  one by one {single_s:5.2f} s  {same} of 4 answers the same",
                flush=True,
            )
            if number:
                forks.append(fork_s)
                singles.append(single_s)
    ratio = statistics.median(single / fork for fork, single in zip(forks, singles, strict=True))
    is_met = ratio >= TARGET
    print(
        f"median fork {statistics.median(forks):.2f} s, one by one {statistics.median(singles):.2f} s, "
        f"ratio {ratio:.2f} (target {TARGET})  {'ok' if is_met else 'MISSED'}"
    )
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
