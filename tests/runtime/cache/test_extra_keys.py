"""Requests of different extra keys share no prefix, over the native and over OpenAI's API."""

import pytest

from fakes.hashed_composition import HASHED
from sgl_runtime.engine import Engine
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.openai_chat_body import parse_chat
from sgl_runtime.server.openai_completion_body import parse_completion

PROMPT = "the same words for everybody"


def test_an_extra_key_hides_a_prefix_from_all_others():
    with Engine("hashed", factories=HASHED) as engine:
        params = {"max_new_tokens": 2, "temperature": 0}

        def cached(**fields: object) -> int:
            return engine.generate(PROMPT, params, **fields)["meta_info"]["cached_tokens"]

        # The token in front of a text counts too, and the last token of a prompt is always computed.
        assert [cached(), cached()] == [0, len(PROMPT)]
        assert [cached(extra_key="a"), cached(extra_key="b"), cached(extra_key="a")] == [0, 0, len(PROMPT)]
        replies = engine.generate([PROMPT, PROMPT], params, extra_key=["c", "a"])
        assert [reply["meta_info"]["cached_tokens"] for reply in replies] == [0, len(PROMPT)]
        with pytest.raises(InvalidRequestError, match="extra_key is 5; it must be a non-empty string"):
            engine.generate(PROMPT, params, extra_key=5)


def test_a_cache_salt_of_openais_api_is_an_extra_key():
    completion = parse_completion({"model": "m", "prompt": "a", "cache_salt": "s"})
    assert [request.extra_key for request in completion.requests] == ["s"]
    chat = parse_chat({"model": "m", "messages": [{"role": "user", "content": "a"}], "cache_salt": "s"})
    assert chat.call.options["extra_key"] == "s"
    with pytest.raises(InvalidRequestError) as error:
        parse_completion({"model": "m", "prompt": "a", "cache_salt": ""})
    assert (error.value.param, error.value.message) == ("cache_salt", "cache_salt is ''; it must be a non-empty string")
