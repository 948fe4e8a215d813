"""--skip-tokenizer-init: ids in, ids out, and no tokenizer file anywhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.tiny_llama import save_tiny_llama
from sgl_runtime.engine import Engine
from sgl_runtime.errors import InvalidRequestError

PROMPT = [5, 9, 33, 120, 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_tiny_llama(folder)
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    for path in folder.glob("*token*"):
        path.unlink()
    engine = Engine(model_path=str(folder), skip_tokenizer_init=True, max_total_tokens=512)
    yield engine
    engine.shutdown()


def test_ids_give_the_ids_that_a_server_with_a_tokenizer_gives(engine: Engine, tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    sampling = {"temperature": 0.0, "max_new_tokens": 12, "ignore_eos": True}
    reply = engine.generate(input_ids=PROMPT, sampling_params=sampling, return_logprob=True)
    assert reply["text"] == ""
    assert len(reply["output_ids"]) == 12
    with_text = Engine(model_path=str(tmp_path), max_total_tokens=512)
    try:
        full = with_text.generate(input_ids=PROMPT, sampling_params=sampling)
    finally:
        with_text.shutdown()
    assert reply["output_ids"] == full["output_ids"]
    assert reply["text_output_ids"] == reply["output_ids"]
    assert reply["meta_info"]["finish_reason"]["type"] == "length"
    assert [triple[1] for triple in reply["meta_info"]["output_token_logprobs"]] == reply["output_ids"]


def test_a_stream_and_stop_ids_work(engine: Engine) -> None:
    sampling = {"temperature": 0.0, "max_new_tokens": 12, "ignore_eos": True}
    ids = engine.generate(input_ids=PROMPT, sampling_params=sampling)["output_ids"]
    stop = ids[4]
    stopped = engine.generate(input_ids=PROMPT, sampling_params={**sampling, "stop_token_ids": [stop]})
    assert stopped["output_ids"] == ids[: ids.index(stop) + 1]
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    *_, last = engine.generate(input_ids=PROMPT, sampling_params=sampling, stream=True)
    assert last["output_ids"] == ids


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": "hello"}, "text"),
        ({"input_ids": PROMPT, "sampling_params": {"stop": "x"}}, "sampling_params.stop"),
        ({"input_ids": PROMPT, "sampling_params": {"stop_regex": "x"}}, "sampling_params.stop_regex"),
        ({"input_ids": PROMPT, "sampling_params": {"regex": "x"}}, "sampling_params.regex"),
        ({"input_ids": PROMPT, "sampling_params": {"choices": ["x"]}}, "sampling_params.choices"),
        (
            {"input_ids": [PROMPT, PROMPT], "sampling_params": [{}, {"json_schema": "{}"}]},
            "[1].sampling_params.json_schema",
        ),
        ({"input_ids": PROMPT, "return_logprob": True, "return_text_in_logprobs": True}, "return_text_in_logprobs"),
    ],
)
def test_what_needs_text_is_refused_by_name(engine: Engine, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError, match="needs a tokenizer") as caught:
        engine.call_and_wait("/generate", fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"text": "hello"}),
        ("/detokenize", {"tokens": [1, 2]}),
        ("/role_affixes", {"messages": [], "role": "user"}),
    ],
)
def test_paths_that_are_about_text_are_refused(engine: Engine, path: str, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="--skip-tokenizer-init"):
        engine.call_and_wait(path, body)
    assert engine.get_model_info()["has_tokenizer"] is False
