"""Many choices cost about their distinct tokens (C05), on the script and on the small real model."""

import math
import random

import pytest

import sgl

pytestmark = pytest.mark.timeout(60)

PROMPT = "The town that I like best of all is "
WORDS = [
    "San",
    "Santa",
    "New",
    "Port",
    "Saint",
    "Old",
    "Maria",
    "York",
    "Haven",
    "Jose",
    "Ana",
    "Louis",
    "ville",
    "ton",
]


def three_hundred() -> list[str]:
    rng = random.Random(5)
    names: dict[str, None] = dict.fromkeys(["San", "San Jose", "San Jose Maria"])
    while len(names) < 300:
        names[" ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 5)))] = None
    return rng.sample(list(names), len(names))


NAMES = three_hundred()


@pytest.fixture(params=["scripted", pytest.param("engine", marks=[pytest.mark.model, pytest.mark.slow])])
def backend(request):
    return sgl.ScriptedBackend() if request.param == "scripted" else request.getfixturevalue("small_engine")


@sgl.function
def picking(s, choices, method=None):
    s += PROMPT + sgl.select("x", choices, choices_method=method)


def num_nodes(sequences) -> int:
    """Nodes of the tree of some sequences."""
    return len({tuple(ids[:length]) for ids in sequences for length in range(1, len(ids) + 1)})


def computed(meta) -> int:
    return sum(item["prompt_tokens"] - item["cached_tokens"] for item in meta["requests"])


def test_three_hundred_choices_cost_their_distinct_tokens_and_one_each(backend):
    sgl.flush_cache(backend)
    meta = picking.run(NAMES, backend=backend).get_meta_info("x")
    ids = [[token[1] for token in tokens] for tokens in meta["input_token_logprobs"]]
    nodes = num_nodes(ids)
    assert nodes < 0.6 * sum(map(len, ids)), "the choices share beginnings"
    prompt_tokens = min(item["prompt_tokens"] for item in meta["requests"])
    assert computed(meta) <= nodes + len(NAMES) + prompt_tokens + 1
    again = picking.run(NAMES, backend=backend).get_meta_info("x")
    assert computed(again) <= nodes + len(NAMES) + 1
    assert again["scores"] == pytest.approx(meta["scores"], abs=1e-3)


def test_the_order_of_many_choices_changes_nothing(backend):
    choices = NAMES[:40]
    metas = []
    for order in (choices, choices[::-1]):
        sgl.flush_cache(backend)
        meta = picking.run(order, backend=backend).get_meta_info("x")
        metas.append({choice: meta["input_token_logprobs"][place] for place, choice in enumerate(order)})
    assert metas[0] == metas[1]


def test_scores_without_the_prompt_cost_no_more_than_their_distinct_tokens():
    backend = sgl.ScriptedBackend()
    meta = picking.run(NAMES, sgl.unconditional_likelihood_normalized, backend=backend).get_meta_info("x")
    calls = backend.model.calls
    assert len(calls) == 2 * len(NAMES)
    asked = [call.prompt_ids[call.payload["logprob_start_len"] :] for call in calls[len(NAMES) :]]
    ids = [[token[1] for token in tokens] for tokens in meta["input_token_logprobs"]]
    assert sum(map(len, asked)) == num_nodes(ids)
    assert all(len(alone) == len(own) for alone, own in zip(meta["unconditional_token_logprobs"], ids, strict=True))


@pytest.mark.model
def test_shared_tokens_have_the_log_probabilities_of_choices_scored_alone(small_engine):
    choices = ["San", "San Jose", "San Jose Maria", "Santa", "Port"]
    method = sgl.unconditional_likelihood_normalized
    together = picking.run(choices, method, backend=small_engine).get_meta_info("x")
    for place, choice in enumerate(choices):
        # The word beside it keeps the place from which tokens count.
        alone = picking.run(
            [choice, "Port" if choice != "Port" else "San"], method, backend=small_engine
        ).get_meta_info("x")
        for name in ("input_token_logprobs", "unconditional_token_logprobs"):
            values, expected = (
                [token[0] if isinstance(token, list) else token for token in meta[name][index]]
                for meta, index in ((together, place), (alone, 0))
            )
            assert values == pytest.approx(expected, abs=1e-3)
    assert math.fsum(together["probabilities"]) == pytest.approx(1.0)


def test_choices_that_become_the_same_tokens_have_the_same_score():
    class Folding(sgl.backends.scripted_tokenizer.ByteTokenizer):
        def encode(self, text):
            return super().encode(text.lower())

    meta = picking.run(["Ab", "aB", "abc"], backend=sgl.ScriptedBackend(tokenizer=Folding())).get_meta_info("x")
    assert meta["input_token_logprobs"][0] == meta["input_token_logprobs"][1]
    assert len(meta["input_token_logprobs"][2]) == 3
