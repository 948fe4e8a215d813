"""C04 at its full size: six options, ten orders, three splits of the text, on the script and on the small real model."""

import itertools
import math

import pytest

import sgl
from sgl.backends.scripted_tokenizer import WordTokenizer

pytestmark = pytest.mark.timeout(300)

PROMPT = "The quick brown fox jumps over the la"
CHOICES = ["zy dog", "te dog", "mb", " dog", "ptop", "test"]
ORDERS = list(itertools.permutations(CHOICES))[::72]
SPLITS = [[PROMPT], [PROMPT[:-1], PROMPT[-1:]], [PROMPT[:12], PROMPT[12:25], PROMPT[25:]]]


def likelihood(context, token):
    return -(sum(map(ord, context[-3:] + token)) % 97) / 10


@pytest.fixture(params=["scripted", pytest.param("engine", marks=[pytest.mark.model, pytest.mark.slow])])
def backend(request):
    if request.param == "scripted":
        return sgl.ScriptedBackend(logprob=likelihood, tokenizer=WordTokenizer())
    return request.getfixturevalue("engine")


@sgl.function
def picking(s, parts, choices, method=None):
    for part in parts:
        s += part
    s += sgl.select("x", choices, choices_method=method)


@pytest.mark.parametrize(
    "method",
    [
        sgl.token_length_normalized,
        sgl.greedy_token_selection,
        sgl.unconditional_likelihood_normalized,
        sgl.exact_sequence_probability,
    ],
)
def test_c04_order_and_splits_change_no_score_and_no_pick(backend, method):
    assert (len(ORDERS), len(SPLITS)) == (10, 3)
    picks, expected = set(), None
    for parts, order in itertools.product(SPLITS, ORDERS):
        state = picking.run(parts, list(order), method, backend=backend)
        meta = state.get_meta_info("x")
        scores = dict(zip(order, meta["scores"], strict=True))
        expected = expected or scores
        assert scores == pytest.approx(expected, abs=1e-3)
        assert math.fsum(meta["probabilities"]) == pytest.approx(1.0)
        picks.add(state["x"])
    assert len(picks) == 1


def test_c04_scores_are_those_of_the_raw_log_probabilities():
    backend = sgl.ScriptedBackend(logprob=likelihood, tokenizer=WordTokenizer())
    meta = picking.run([PROMPT], CHOICES, backend=backend).get_meta_info("x")
    tokenizer = WordTokenizer()
    for choice, score, tokens in zip(CHOICES, meta["scores"], meta["input_token_logprobs"], strict=True):
        ids = tokenizer.encode(PROMPT + choice)
        texts = [tokenizer.token_bytes(token_id).decode() for token_id in ids]
        first = len(ids) - len(tokens)
        raw = [likelihood("".join(texts[:place]), texts[place]) for place in range(first, len(ids))]
        assert [token[2] for token in tokens] == texts[first:]
        assert score == pytest.approx(math.fsum(raw) / len(raw), abs=1e-9)
