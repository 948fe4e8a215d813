"""Hidden states and custom processors on a tiny random model, beside transformers' own."""

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fakes.logit_processors import CountUp
from fakes.tiny_llama import byte_level_tokens, save_tiny_llama
from sgl_runtime.engine import Engine
from sgl_runtime.errors import InvalidRequestError

FLAGS = {
    "max_total_tokens": 1024,
    "max_running_requests": 8,
    "chunked_prefill_size": 64,
    "enable_return_hidden_states": True,
    "enable_custom_logit_processor": True,
    "custom_logit_processor": "favour=fakes.logit_processors:favour, bad=fakes.logit_processors:wrong_shape",
}
GREEDY = {"temperature": 0, "max_new_tokens": 5, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("served")
    save_tiny_llama(folder)
    with Engine(str(folder), **FLAGS) as engine:
        yield engine


def test_hidden_states_equal_transformers(engine: Engine, model: Any) -> None:
    rng = random.Random(5)
    prompt = [rng.randrange(3, 260) for _ in range(150)]
    for _ in range(2):
        # The second time all of the prompt is cached, and computed anew all the same.
        reply = engine.generate(input_ids=prompt, sampling_params=GREEDY, return_hidden_states=True)
        read = [*prompt, *reply["output_ids"][:-1]]
        with torch.inference_mode():
            wanted = model(torch.tensor([read]), output_hidden_states=True).hidden_states[-1][0]
        of_prompt, *of_output = reply["meta_info"]["hidden_states"]
        assert len(of_prompt) == 150
        assert len(of_output) == 4
        torch.testing.assert_close(torch.tensor([*of_prompt, *of_output]), wanted, atol=2e-4, rtol=2e-4)


def test_servers_of_one_seed_draw_the_same_and_say_so(engine: Engine, tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    sampling = {"max_new_tokens": 6, "ignore_eos": True}
    drawn = []
    for _ in range(2):
        with Engine(str(tmp_path), max_total_tokens=512, random_seed=5) as seeded:
            drawn.append([seeded.generate(input_ids=[5, 6], sampling_params=sampling)["output_ids"] for _ in range(2)])
            info = seeded.get_server_info()
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]
    assert info["random_seed"] == 5
    # Two layers of two groups of twelve numbers, keys and values, four bytes each.
    assert info["kv_cache_bytes"] == 512 * 2 * 2 * 2 * 12 * 4
    assert info["max_total_tokens"] == info["internal_states"][0]["total_slots"] == 512
    assert info["max_req_len"] == info["context_length"] == 256
    assert isinstance(engine.get_server_info()["random_seed"], int)


def test_named_and_pickled_processors_decide_what_is_drawn(engine: Engine) -> None:
    sampling = {**GREEDY, "custom_params": {"token_id": 77}}
    reply = engine.generate(input_ids=[5, 6], sampling_params=sampling, custom_logit_processor="favour")
    assert reply["output_ids"] == [77] * 5
    text = json.dumps({"callable": pickle.dumps(CountUp).hex()})
    replies = engine.generate(
        input_ids=[[5, 6], [7], [8, 9]],
        sampling_params=GREEDY,
        custom_logit_processor=[text, None, text],
        return_logprob=True,
    )
    plain = engine.generate(input_ids=[7], sampling_params=GREEDY)
    assert [reply["output_ids"] for reply in replies] == [[0, 1, 2, 3, 4], plain["output_ids"], [0, 1, 2, 3, 4]]
    # Log probabilities are the model's own, whatever a processor does.
    assert all(entry[0] < -0.5 for entry in replies[0]["meta_info"]["output_token_logprobs"])


def test_a_processor_is_bound_by_the_constraint(engine: Engine) -> None:
    sampling = {**GREEDY, "regex": "[a-z]+", "custom_params": {"token_id": 0}}
    with pytest.raises(InvalidRequestError, match="left no token to draw"):
        engine.generate(input_ids=[5, 6], sampling_params=sampling, custom_logit_processor="favour")


def test_a_constraint_all_of_whose_tokens_are_forbidden_ends_one_request(engine: Engine) -> None:
    """The one token that the grammar allows must not come yet; the server goes on."""
    for temperature in (0, 1):
        sampling = {"regex": "0000", "min_new_tokens": 4, "stop_token_ids": [byte_level_tokens().index("0")]}
        with pytest.raises(InvalidRequestError, match="is left to draw: min_new_tokens with stop_token_ids,"):
            engine.generate("hello", sampling_params={**sampling, "temperature": temperature})
    assert engine.generate(input_ids=[7], sampling_params=GREEDY)["meta_info"]["completion_tokens"] == 5


def test_temperatures_next_to_zero_take_the_likeliest_token(engine: Engine) -> None:
    greedy = engine.generate(input_ids=[7], sampling_params=GREEDY)["output_ids"]
    for temperature in (1e-10, 1e-38, 1e-44, 1e-60):
        sampling = {**GREEDY, "temperature": temperature, "top_p": 0.9}
        assert engine.generate(input_ids=[7], sampling_params=sampling)["output_ids"] == greedy


def test_a_processor_that_fails_leaves_its_batch_mates_alone(engine: Engine) -> None:
    plain = engine.generate(input_ids=[7], sampling_params=GREEDY)
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="custom_logit_processor failed: TypeError"):
            engine.generate(input_ids=[8, 9], sampling_params=GREEDY, custom_logit_processor="bad")
        again = engine.generate(input_ids=[[7], [7, 7]], sampling_params=GREEDY)
        assert again[0]["output_ids"] == plain["output_ids"]
