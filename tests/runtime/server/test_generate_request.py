from typing import Any

import pytest

from sgl_runtime.errors import ContextLengthError, InvalidRequestError
from sgl_runtime.server.generate_request import parse_generate
from sgl_runtime.server.generation_prompts import resolve_max_new_tokens

WRONG = [
    (None, None, "body is null"),
    ([], None, "body is a list"),
    ({}, "text", "neither text nor input_ids"),
    ({"text": "a", "txt": 1}, "txt", "txt is not a known field; known: text, input_ids"),
    ({"text": 5}, "text", "text is 5; it must be a string"),
    ({"text": []}, "text", "text is an empty list"),
    ({"text": ["a", 5]}, "[1].text", "[1].text is 5"),
    ({"text": "a\ud800"}, "text", "half of a surrogate pair at character 1"),
    ({"input_ids": "a"}, "input_ids", "must be a list of token ids"),
    ({"input_ids": [1, "a"]}, "input_ids[1]", "input_ids[1] is 'a'"),
    ({"input_ids": [1, True]}, "input_ids[1]", "must be a token id"),
    ({"input_ids": [[1], 2]}, "[1].input_ids", "must be a list of token ids"),
    ({"text": ["a", "b"], "input_ids": [[1]]}, "input_ids", "a list of 1; it must be a list of 2"),
    ({"text": "a", "input_ids": [[1]]}, "text", "a string; it must be a list of 1"),
    ({"text": ["a", "b"], "rid": "x"}, "rid", "a string; it must be a list of 2"),
    ({"text": ["a", "b"], "rid": ["x", "x"]}, "[1].rid", "stands twice"),
    ({"text": ["a", "b"], "sampling_params": [{}]}, "sampling_params", "must be a list of 2"),
    ({"text": "a", "sampling_params": [{}]}, "sampling_params", "must be an object"),
    ({"text": "a", "sampling_params": {"top_p": 0}}, "sampling_params.top_p", "above 0, at most 1"),
    ({"text": ["a", "b"], "sampling_params": [{}, {"top_p": 2}]}, "[1].sampling_params.top_p", "is 2"),
    ({"text": "a", "sampling_params": {"temp": 1}}, "sampling_params.temp", "not a known field"),
    ({"text": "a", "sampling_params": {"temperature": 10**400}}, "sampling_params.temperature", "from 0 to 100"),
    ({"text": "a", "sampling_params": {"temperature": float("nan")}}, "sampling_params.temperature", "from 0 to 100"),
    ({"text": "a", "sampling_params": {"top_k": 10**5000}}, "sampling_params.top_k", "a value of type int"),
    ({"text": "a", "sampling_params": {"json_schema": {"enum": [object()]}}}, "sampling_params.json_schema", "as JSON"),
    ({"text": "a", "sampling_params": {"stop": ["\ud800"]}}, "sampling_params.stop", "surrogate"),
    ({"text": "a", "sampling_params": {"regex": "a", "choices": ["b"]}}, "sampling_params.regex", "at most one"),
    ({"text": "a", "rid": ""}, "rid", "non-empty string"),
    ({"text": "a", "stream": "yes"}, "stream", "true or false"),
    ({"text": "a", "return_logprob": 1}, "return_logprob", "true or false"),
    ({"text": "a", "logprob_start_len": -2}, "logprob_start_len", "an integer from -1 to 2147483647"),
    ({"text": ["a", "b"], "logprob_start_len": [0, -2]}, "[1].logprob_start_len", "an integer from -1 to 2147483647"),
    ({"text": ["a", "b"], "logprob_start_len": [0]}, "logprob_start_len", "a list of 1; it must be a list of 2"),
    ({"text": "a", "logprob_start_len": [0]}, "logprob_start_len", "an integer from -1 to 2147483647"),
    ({"text": "a", "top_logprobs_num": 101}, "top_logprobs_num", "from 0 to 100"),
    ({"text": "a", "token_ids_logprob": ["x"]}, "token_ids_logprob[0]", "must be a token id"),
    ({"text": ["a"], "token_ids_logprob": [[1, "x"]]}, "[0].token_ids_logprob[1]", "must be a token id"),
    ({"text": "a", "token_ids_logprob": [1] * 1001}, "token_ids_logprob", "holds 1001 ids; at most 1000"),
    ({"text": "a", "token_ids_logprob": [1]}, "token_ids_logprob", "left out where return_logprob is false"),
    ({"text": "a", "priority": 1.5}, "priority", "must be an integer from -2147483647 to 2147483647"),
    ({"text": "a", "sampling_params": {"n": 129}}, "sampling_params.n", "from 1 to 128"),
    ({"text": "a", "sampling_params": {"stop_regex": ["a"] * 9}}, "sampling_params.stop_regex", "at most 8"),
    ({"text": "a", "sampling_params": {"stop_regex": "\ud800"}}, "sampling_params.stop_regex", "surrogate"),
    ({"text": "a", "sampling_params": {"ebnf": ""}}, "sampling_params.ebnf", "non-empty string"),
    (
        {"text": "a", "sampling_params": {"structural_tag": []}},
        "sampling_params.structural_tag",
        "structural tag as an",
    ),
    ({"text": ["a", "b"], "rid": ["x", "x-1"], "sampling_params": {"n": 2}}, "[1].rid", "'x-1' stands twice"),
]


@pytest.mark.parametrize(("payload", "param", "message"), WRONG)
def test_wrong_field_is_named(payload: Any, param: str | None, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_generate(payload)
    assert caught.value.param == param
    assert message in caught.value.message


def test_null_means_the_default() -> None:
    body = parse_generate({"text": "a", "input_ids": None, "sampling_params": None, "rid": None, "stream": None})
    (request,) = body.requests
    assert not body.is_batch
    assert not body.stream
    assert request.rid
    assert request.sampling.temperature == 1.0


def test_one_object_of_sampling_params_serves_a_whole_batch() -> None:
    body = parse_generate({"text": ["a", "b"], "sampling_params": {"top_k": 3}, "rid": ["x", "y"]})
    assert [(request.rid, request.text, request.sampling.top_k) for request in body.requests] == [
        ("x", "a", 3),
        ("y", "b", 3),
    ]


def test_lists_of_ids_and_texts_go_together() -> None:
    body = parse_generate({"input_ids": [[1], [2]], "text": ["a", None]})
    assert [(request.input_ids, request.text) for request in body.requests] == [([1], "a"), ([2], None)]


@pytest.mark.parametrize(
    ("asked", "num_prompt_ids", "expected"), [(None, 3, 7), (5, 3, 5), (50, 3, 7), (0, 10, 0), (0, 3, 0), (9, 9, 1)]
)
def test_max_new_tokens_is_what_fits(asked: int | None, num_prompt_ids: int, expected: int) -> None:
    assert resolve_max_new_tokens(asked, num_prompt_ids=num_prompt_ids, context_length=10) == expected


@pytest.mark.parametrize(("asked", "num_prompt_ids"), [(None, 10), (1, 10), (0, 11)])
def test_prompt_that_leaves_no_room_is_refused_with_both_numbers(asked: int | None, num_prompt_ids: int) -> None:
    with pytest.raises(ContextLengthError, match=rf"the prompt has {num_prompt_ids} tokens; the context holds 10"):
        resolve_max_new_tokens(asked, num_prompt_ids=num_prompt_ids, context_length=10)
