"""Prompts given as embeddings: the same output as the ids, and nothing of them in the prefix cache."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.tiny_llama import byte_level_tokenizer, save_tiny_llama
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ContextLengthError, InvalidRequestError
from sgl_runtime.server.generate_request import parse_generate

PROMPTS = ["hello world, how are you?", "a" * 90, "well " * 12]
GREEDY = {"temperature": 0.0, "max_new_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    save_tiny_llama(folder)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The model's own embeddings."""
    model = save_tiny_llama(tmp_path_factory.mktemp("table"))
    weights: np.ndarray = model.model.embed_tokens.weight.detach().numpy()
    return weights


def ids_of(text: str) -> list[int]:
    ids: list[int] = byte_level_tokenizer()(text)["input_ids"]
    return ids


def in_base64(rows: np.ndarray) -> dict[str, Any]:
    return {"data": base64.b64encode(rows.astype("<f4").tobytes()).decode(), "shape": list(rows.shape)}


@pytest.mark.parametrize("flags", [{}, {"chunked_prefill_size": 16}, {"disable_radix_cache": True}])
def test_the_forms_of_a_prompt_give_the_same_tokens(folder: Path, table: np.ndarray, flags: dict[str, Any]) -> None:
    with Engine(str(folder), max_total_tokens=1024, **flags) as engine:
        texts = engine.generate(PROMPTS, GREEDY)
        by_ids = engine.generate(input_ids=[ids_of(text) for text in PROMPTS], sampling_params=GREEDY)
        matrices = [table[ids_of(text)] for text in PROMPTS]
        before = engine.get_server_info()["internal_states"][0]["cached_slots"]
        forms = [[matrix.tolist() for matrix in matrices], [in_base64(matrix) for matrix in matrices]]
        for embeds in forms:
            given = engine.generate(input_embeds=embeds, sampling_params=GREEDY)
            for one, two, three in zip(texts, by_ids, given, strict=True):
                assert one["output_ids"] == two["output_ids"] == three["output_ids"]
                assert three["meta_info"]["prompt_tokens"] == one["meta_info"]["prompt_tokens"]
                assert three["meta_info"]["cached_tokens"] == 0
        state = engine.get_server_info()["internal_states"][0]
        assert state["cached_slots"] == before
        assert state["free_slots"] + state["cached_slots"] == state["total_slots"]


def test_streams_log_probabilities_and_several_outputs(folder: Path, table: np.ndarray) -> None:
    with Engine(str(folder), max_total_tokens=1024, enable_return_hidden_states=True) as engine:
        rows = table[ids_of(PROMPTS[0])].tolist()
        wanted = {"return_logprob": True, "top_logprobs_num": 2, "return_hidden_states": True}
        expected = engine.generate(PROMPTS[0], GREEDY, **wanted)
        stream = list(engine.generate(input_embeds=rows, sampling_params=GREEDY, stream=True, **wanted))
        last = stream[-1]
        assert last["output_ids"] == expected["output_ids"]
        assert len(stream) > 2
        ours, theirs = (
            np.array([entry[0] for entry in reply["meta_info"]["output_token_logprobs"]]) for reply in (last, expected)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
        states = last["meta_info"]["hidden_states"]
        np.testing.assert_allclose(states[0], expected["meta_info"]["hidden_states"][0], atol=1e-4)
        several = engine.generate(input_embeds=rows, sampling_params={**GREEDY, "n": 3})
        assert [reply["output_ids"] for reply in several] == [expected["output_ids"]] * 3


def test_a_retracted_request_gets_its_rows_again(folder: Path, table: np.ndarray) -> None:
    settings = {**GREEDY, "max_new_tokens": 60}
    prompts = [ids_of(text[:40]) for text in PROMPTS]
    with Engine(str(folder), max_total_tokens=1024) as engine:
        expected = [engine.generate(input_ids=ids, sampling_params=settings)["output_ids"] for ids in prompts]
    flags: dict[str, Any] = {"schedule_conservativeness": 0.01, "chunked_prefill_size": 32, "context_length": 120}
    with Engine(str(folder), max_total_tokens=160, **flags) as engine:
        embeds = [table[ids].tolist() for ids in prompts]
        given = engine.generate(input_embeds=embeds, sampling_params=settings)
        assert [reply["output_ids"] for reply in given] == expected
        state = engine.get_server_info()["internal_states"][0]
        assert state["num_retracted_total"] > 0
        assert state["free_slots"] == 160


def test_a_prompt_that_is_too_long_is_refused_or_cut(folder: Path, table: np.ndarray) -> None:
    rows = np.repeat(table[5:6], 300, axis=0)
    with Engine(str(folder), max_total_tokens=1024) as engine, pytest.raises(ContextLengthError, match="300 tokens"):
        engine.generate(input_embeds=in_base64(rows), sampling_params=GREEDY)
    with Engine(str(folder), max_total_tokens=1024, allow_auto_truncate=True) as engine:
        given = engine.generate(input_embeds=in_base64(rows), sampling_params=GREEDY)
        by_ids = engine.generate(input_ids=[5] * 300, sampling_params=GREEDY)
        assert given["output_ids"] == by_ids["output_ids"]
        assert given["meta_info"]["prompt_tokens"] == by_ids["meta_info"]["prompt_tokens"] == 255


def test_rows_of_another_width_are_refused(folder: Path) -> None:
    with (
        Engine(str(folder), max_total_tokens=1024) as engine,
        pytest.raises(InvalidRequestError, match="rows of 3 numbers; the model's embeddings have 48"),
    ):
        engine.generate(input_embeds=[[1.0, 2.0, 3.0]])


ROW = [0.5, 1.0]


@pytest.mark.parametrize(
    ("payload", "param", "sentence"),
    [
        ({"input_embeds": []}, "input_embeds", "holds no numbers"),
        ({"input_embeds": [[]]}, "input_embeds", "holds no numbers"),
        ({"input_embeds": "x"}, "input_embeds", "a list of rows of numbers"),
        ({"input_embeds": [ROW, 3]}, "input_embeds", r"input_embeds\[1\] is a number"),
        ({"input_embeds": [ROW, [1.0]]}, "input_embeds[1]", "has 1 numbers; the first row has 2"),
        ({"input_embeds": [ROW, [1.0, "2"]]}, "input_embeds[1][1]", "'2'; it must be a number"),
        ({"input_embeds": [ROW, [True, 2]]}, "input_embeds[1][0]", "a number"),
        ({"input_embeds": [ROW, [float("nan"), 2]]}, "input_embeds[1][0]", "is nan; it must be a finite float32"),
        ({"input_embeds": [ROW, [0, 1e300]]}, "input_embeds[1][1]", "is inf"),
        ({"input_embeds": [ROW, [0, 10**400]]}, "input_embeds", "too large"),
        ({"input_embeds": [[ROW], [ROW, ROW, [1.0]]]}, "[1].input_embeds[2]", "has 1 numbers"),
        ({"input_embeds": {"data": "!", "shape": [1, 2]}}, "input_embeds.data", "no base64"),
        ({"input_embeds": {"data": "AAAA", "shape": [1, 2]}}, "input_embeds.data", "3 bytes; 1 rows of 2 float32"),
        ({"input_embeds": {"data": "AAAA", "shape": [1]}}, "input_embeds.shape", "two integers"),
        ({"input_embeds": {"data": "AAAA", "shape": [0, 1]}}, "input_embeds.shape[0]", "from 1"),
        ({"input_embeds": {"data": 3, "shape": [1, 1]}}, "input_embeds.data", "base64"),
        ({"input_embeds": {"data": "", "form": 1}}, "input_embeds.form", "not a known field"),
        ({"input_embeds": in_base64(np.array([[1.0, np.inf]]))}, "input_embeds[0][1]", "finite"),
        ({"input_embeds": [ROW], "text": "a"}, "input_embeds", "stands beside text or input_ids"),
        ({"input_embeds": [ROW], "input_ids": [1]}, "input_embeds", "stands beside"),
        ({"input_embeds": [[ROW], [ROW]], "text": [None, "a"]}, "[1].input_embeds", "stands beside"),
        ({"input_embeds": [ROW], "session_params": {"id": "s"}}, "session_params", "a session keeps token ids"),
        (
            {"input_embeds": [ROW], "return_logprob": True, "logprob_start_len": 0},
            "logprob_start_len",
            "-1 with input_embeds",
        ),
    ],
)
def test_what_is_wrong_with_embeddings_is_told(payload: dict[str, Any], param: str, sentence: str) -> None:
    with pytest.raises(InvalidRequestError, match=sentence) as caught:
        parse_generate(payload)
    assert caught.value.param == param


def test_a_batch_may_mix_the_forms() -> None:
    body = parse_generate({"text": ["a", None], "input_embeds": [None, [ROW, ROW]]})
    assert body.requests[0].input_embeds is None
    embeds = body.requests[1].input_embeds
    assert embeds is not None
    assert (embeds.size, embeds.count) == (2, 2)
