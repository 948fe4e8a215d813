"""Every way to run a program comes to the same text, variables and stream as a naive oracle (C01, C07, C09, C12)."""

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgl

pytestmark = pytest.mark.timeout(120)

NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = st.text(alphabet="xyz é漢\n", min_size=1, max_size=4)


def blocks(children):
    return st.one_of(
        st.tuples(st.just("scope"), NAMES, children),
        st.tuples(st.just("inline"), children),
        st.tuples(st.just("join"), st.lists(children, min_size=1, max_size=3)),
        st.tuples(st.just("gather"), st.lists(children, min_size=1, max_size=3)),
    )


LEAVES = st.one_of(
    st.tuples(st.just("text"), TEXTS),
    st.tuples(st.just("gen"), NAMES, TEXTS),
    st.tuples(st.just("select"), NAMES, TEXTS),
)
PROGRAMS = st.recursive(
    st.lists(LEAVES, max_size=3),
    lambda children: st.lists(st.one_of(LEAVES, blocks(children)), max_size=4),
    max_leaves=12,
)


def oracle(nodes, variables):
    """The text that nodes add; fills the variables."""
    text = ""
    for kind, *rest in nodes:
        if kind == "text":
            text += rest[0]
        elif kind in ("gen", "select"):
            variables[rest[0]] = rest[1]
            text += rest[1]
        elif kind == "scope":
            inner = oracle(rest[1], variables)
            variables[rest[0]] = variables[rest[0]] if rest[0] in assigned(rest[1]) else inner
            text += inner
        elif kind == "inline":
            text += oracle(rest[0], {})
        else:
            text += joined(kind, rest[0], variables)
    return text


def assigned(nodes):
    """The names that nodes give a new variable in the same program."""
    names = set()
    for kind, *rest in nodes:
        if kind in ("gen", "select", "scope"):
            names |= {rest[0]}
        if kind == "scope":
            names |= assigned(rest[1])
        if kind == "gather":
            # Whether a join replaces a list depends on what was there: not predicted here.
            names |= set().union(*map(assigned, rest[0]))
    return names


def joined(kind, branches, variables):
    results = []
    for branch in branches:
        mine = dict(variables)
        results.append((oracle(branch, mine), mine, assigned(branch)))
    if kind == "join":
        return "".join(text for text, _, _ in results)
    for name in dict.fromkeys(name for _, _, names in results for name in sorted(names)):
        if name not in variables or isinstance(variables[name], list):
            variables[name] = [mine[name] if name in names else None for _, mine, names in results]
    return ""


def leaf(node):
    kind, *rest = node
    if kind == "text":
        return rest[0]
    name, value = rest
    return sgl.gen(name, regex=re.escape(value), max_tokens=100) if kind == "gen" else sgl.select(name, [value])


@sgl.function
def plain(s, nodes):
    for node in nodes:
        kind, *rest = node
        if kind == "scope":
            with s.var_scope(rest[0]):
                inside(s, rest[1])
        elif kind == "inline":
            plain(s, rest[0])
        elif kind in ("join", "gather"):
            forks = s.fork(len(rest[0]))
            for branch, inner in zip(forks, rest[0], strict=True):
                inside(branch, inner)
            forks.join("concatenate" if kind == "join" else "gather")
        else:
            s += leaf(node)


def inside(s, nodes):
    """The nodes as part of the same program."""
    plain.__wrapped__(s, nodes)


@sgl.function
async def awaiting(s, nodes):
    for node in nodes:
        kind, *rest = node
        if kind == "scope":
            with s.var_scope(rest[0]):
                await awaiting.__wrapped__(s, rest[1])
        elif kind == "inline":
            await awaiting(s, rest[0])
        elif kind in ("join", "gather"):
            forks = s.fork(len(rest[0]))
            await asyncio.gather(*map(awaiting.__wrapped__, forks, rest[0]))
            await forks.join("concatenate" if kind == "join" else "gather")
        else:
            s += leaf(node)


def has_names_in_gathers(nodes):
    """Whether names are gathered more than once or from nested joins, where the oracle is too simple."""
    gathers = [node for node in nodes if node[0] == "gather"]
    return len(gathers) > 1 or any(node[0] in ("scope", "gather") and has_gather(node) for node in nodes)


def has_gather(node):
    inner = [node[2]] if node[0] == "scope" else node[1] if node[0] in ("join", "gather") else []
    return any(child[0] == "gather" or has_gather(child) for nodes in inner for child in nodes)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(PROGRAMS)
def test_every_way_to_run_comes_to_the_same(nodes):
    program = [("text", "P"), *nodes]
    variables = {}
    text = oracle(program, variables)
    backend = sgl.ScriptedBackend()
    options = {"backend": backend}
    states = [
        plain.run(program, **options),
        plain.run(program, stream=True, **options),
        plain.run(program, use_thread=False, record=True, **options),
        plain.run_batch([(program,), (program,)], **options)[1],
        awaiting.run(program, **options),
        awaiting.run(program, stream=True, **options),
        awaiting.run_batch([(program,), (program,)], **options)[1],
    ]
    for state in states:
        assert "".join(state.text_iter()) == state.text() == text
        if not has_names_in_gathers(program):
            assert {name: state[name] for name in state.variables()} == variables
    recorded = states[2].recording.runs[0].states[0]
    assert "".join(node.text for node in recorded.nodes) == text

    async def main():
        state = await awaiting.arun(program, **options)
        return await state.text()

    assert asyncio.run(main()) == text
