"""Automata of strings and keys agree with Python about random atoms, labels and texts."""

import itertools
import json
import re
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.strings import StringAtom, StringShape, StringValues
from sgl_runtime.grammar.minimize import minimize_labelled

SCALARS = Scalars(np.ones(256, dtype=bool))
relaxed = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

PATTERNS = [
    "^a",
    "b$",
    "^[ab]*$",
    "ab|ba",
    r"^\d+$",
    r"\w\W",
    r"^\S*$",
    "é",
    "^.{2,3}$",
    "[^a]",
    r"\bab",
    '"',
    r"\\",
    r"^[\n\t]",
    "(?!a)b",
    "^(?:a|é|😀)+$",
    "^$",
    "",
]
WORDS = ["", "a", "ab", "ba", "abab", "é", '"', "\\", "a\n", "\n\t", "😀", "b b", "12", "x-1", "\x7f", "ＡＢ", "١"]
ECMA_SPACE = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
DISPUTED = set("\n\r\x1c\x1d\x1e\x1f")
shapes = st.builds(
    StringShape,
    least=st.sampled_from([0, 0, 1, 2, 4]),
    most=st.sampled_from([None, None, 1, 3, 6]),
    pattern=st.one_of(st.none(), st.sampled_from(PATTERNS)),
)
listed = st.builds(StringValues, st.frozensets(st.sampled_from(WORDS), min_size=1, max_size=5))
atoms = st.lists(st.one_of(shapes, shapes, listed), min_size=1, max_size=3).map(tuple)
texts = st.one_of(st.sampled_from(WORDS), st.text('ab é"\\\n1-😀\r١\x1f', max_size=6), st.text(max_size=5))


def as_in_ecmascript(pattern: str) -> str:
    """A pattern for `re` with the flag ASCII that means what ECMAScript takes it for."""
    pattern = pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern
    return pattern.replace(r"\S", f"[^{ECMA_SPACE}]").replace("^.", "^[^\n\r\u2028\u2029]")


def holds(atom: StringAtom, text: str, *, ecma: bool) -> bool:
    if isinstance(atom, StringValues):
        return text in atom.values
    fits = atom.least <= len(text) and (atom.most is None or len(text) <= atom.most)
    if atom.pattern is None:
        return fits
    pattern = as_in_ecmascript(atom.pattern) if ecma else atom.pattern
    return fits and re.search(pattern, text, re.ASCII if ecma else 0) is not None


def readings(asked: tuple[StringAtom, ...], text: str) -> list[tuple[bool, ...]]:
    return [tuple(holds(atom, text, ecma=ecma) for atom in asked) for ecma in (False, True)]


def random_labels(num_atoms: int, rng: np.random.Generator) -> Callable[[tuple[bool, ...]], int]:
    vectors = list(itertools.product((False, True), repeat=num_atoms))
    table = dict(zip(vectors, rng.integers(-1, 3, len(vectors)).tolist(), strict=True))
    return lambda truths: table[truths]


def spelled(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def walk(fragment: ByteFragment, rng: np.random.Generator) -> bytes | None:
    state, text = 0, bytearray()
    for _ in range(60):
        if fragment.labels[state] >= 0 and rng.random() < 0.3:
            return bytes(text)
        following = np.flatnonzero(fragment.table[state] >= 0)
        if not len(following):
            break
        # Half of the time one of the first bytes, so that plain ASCII is as likely as the rest.
        few = following[following < 128] if rng.random() < 0.5 else following
        text.append(int(rng.choice(few if len(few) else following)))
        state = int(fragment.table[state, text[-1]])
    return bytes(text) if fragment.labels[state] >= 0 else None


def budget() -> Budget:
    return Budget(max_states=20_000, timeout_s=30)


def check_form(fragment: ByteFragment) -> None:
    """Trimmed and smallest."""
    if not fragment.is_empty:
        table, _ = minimize_labelled(fragment.table, fragment.labels, budget())
        assert len(table) == fragment.num_states


@relaxed
@given(asked=atoms, seed=st.integers(0, 2**32), samples=st.lists(texts, min_size=3, max_size=15))
def test_strings(asked: tuple[StringAtom, ...], seed: int, samples: list[str]) -> None:
    rng = np.random.default_rng(seed)
    label_of = random_labels(len(asked), rng)
    fragment = SCALARS.strings(asked, label_of, budget())
    check_form(fragment)
    for text in samples:
        expected = {label_of(truths) for truths in readings(asked, text)}
        found = fragment.label_of(spelled(text))
        assert found == -1 or expected == {found}, (asked, text)
        # A character that readers disagree about may be left out, and only then.
        if len(expected) == 1 and text.isascii() and not set(text) & DISPUTED:
            assert found == expected.pop(), (asked, text)
    for _ in range(10):
        data = walk(fragment, rng) if not fragment.is_empty else None
        if data is not None:
            text = json.loads(b'"' + data + b'"')
            assert spelled(text) == data
            assert {label_of(truths) for truths in readings(asked, text)} == {fragment.label_of(data)}, (asked, text)


@relaxed
@given(
    names=st.lists(st.sampled_from(WORDS), max_size=6, unique=True).map(tuple),
    asked=st.one_of(st.just(()), atoms),
    seed=st.integers(0, 2**32),
    samples=st.lists(texts, min_size=3, max_size=15),
)
def test_keys(names: tuple[str, ...], asked: tuple[StringAtom, ...], seed: int, samples: list[str]) -> None:
    rng = np.random.default_rng(seed)
    tables = {index: random_labels(len(asked), rng) for index in range(-1, len(names))}
    fragment = SCALARS.keys(names, asked, lambda index, truths: tables[index](truths), budget())
    check_form(fragment)
    for text in [*samples, *names]:
        label_of = tables[names.index(text) if text in names else -1]
        expected = {label_of(truths) for truths in readings(asked, text)}
        found = fragment.label_of(spelled(text))
        assert found == -1 or expected == {found}, (names, asked, text)
        if len(expected) == 1 and text.isascii() and not set(text) & DISPUTED:
            assert found == expected.pop(), (names, asked, text)


@settings(relaxed, max_examples=40)
@given(
    asked=atoms,
    seed=st.integers(0, 2**32),
    missing=st.lists(st.one_of(st.integers(0, 127), st.integers(192, 255)), max_size=20),
)
def test_bytes_that_cannot_be_spelled_are_not_used(
    asked: tuple[StringAtom, ...], seed: int, missing: list[int]
) -> None:
    usable = np.ones(256, dtype=bool)
    usable[missing] = False
    scalars = Scalars(usable)
    label_of = random_labels(len(asked), np.random.default_rng(seed))
    fragment = scalars.strings(asked, label_of, budget())
    check_form(fragment)
    assert not (fragment.table[:, ~usable] >= 0).any()
    everything = SCALARS.strings(asked, label_of, budget())
    for text in WORDS:
        data = spelled(text)
        assert scalars.spellable(text) == usable[list(data)].all()
        assert fragment.label_of(data) == (everything.label_of(data) if scalars.spellable(text) else -1)
