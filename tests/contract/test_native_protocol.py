"""docs/protocol.md, path by path: the same payloads to an Engine and to the HTTP server give the same answers."""

import json
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import requests

from fakes.byte_tokenizer import BOS_ID, EOS_ID
from fakes.scripted_server import ScriptedServer
from sgl_runtime.engine import Engine

Call = Callable[..., tuple[int, Any]]


@pytest.fixture(params=["http", "engine"])
def stream(request: pytest.FixtureRequest, server: ScriptedServer, engine: Engine) -> Callable[[Any], list[Any]]:
    """The events of a stream."""

    def over_http(payload: Any) -> list[Any]:
        response = requests.post(server.url + "/generate", json={**payload, "stream": True}, stream=True, timeout=20)
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in response.iter_lines(decode_unicode=True) if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]

    def in_process(payload: Any) -> list[Any]:
        return list(engine.generate(payload.pop("text"), stream=True, **payload))

    return over_http if request.param == "http" else in_process


def generate(call: Call, **payload: Any) -> Any:
    status, reply = call("/generate", payload)
    assert status == 200, reply
    return reply


def test_reply_has_text_ids_and_facts(call: Call) -> None:
    reply = generate(call, text="say:hé", rid="mine")
    meta = reply.pop("meta_info")
    assert meta.pop("e2e_latency") >= 0
    assert reply == {
        "text": "hé",
        "output_ids": [*"hé".encode(), EOS_ID],
        "text_output_ids": [*"hé".encode()],
        "text_output_tail": "",
    }
    assert meta == {
        "id": "mine",
        "finish_reason": {"type": "stop", "matched": EOS_ID},
        "prompt_tokens": 8,
        "completion_tokens": 4,
        "cached_tokens": 3,
    }


def test_text_alone_gets_a_bos_and_text_after_ids_gets_none(call: Call) -> None:
    assert generate(call, text="ab", return_text_ids=True)["text_ids"] == [BOS_ID, *b"ab"]
    assert generate(call, text="<s>ab", return_text_ids=True)["text_ids"] == [BOS_ID, *b"ab"]
    reply = generate(call, input_ids=[*b"say:"], text="ab", return_text_ids=True)
    assert reply["text_ids"] == [*b"ab"]
    assert reply["text"] == "ab"
    assert generate(call, input_ids=[*b"say:x"])["text"] == "x"


def test_stop_string_is_cut_off_and_what_is_left_can_be_gone_on_from(call: Call) -> None:
    reply = generate(call, text="say:one STOP two", sampling_params={"stop": ["two", "STOP"]})
    assert reply["text"] == "one "
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": "STOP"}
    assert bytes(reply["text_output_ids"]).decode() + reply["text_output_tail"] == "one "
    kept = generate(call, text="say:one STOP two", sampling_params={"stop": "STOP", "no_stop_trim": True})
    assert kept["text"] == "one STOP"


def test_length_and_zero_tokens(call: Call) -> None:
    reply = generate(call, text="say:hello", sampling_params={"max_new_tokens": 3})
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 3}
    reply = generate(call, text="say:hello", sampling_params={"max_new_tokens": 0})
    assert (reply["text"], reply["output_ids"], reply["meta_info"]["completion_tokens"]) == ("", [], 0)


def test_logprobs_are_triples(call: Call) -> None:
    meta = generate(call, text="say:a", return_logprob=True, logprob_start_len=0, return_text_in_logprobs=True)[
        "meta_info"
    ]
    assert meta["output_token_logprobs"] == [[-0.5, 97, "a"], [-0.5, EOS_ID, "</s>"]]
    assert meta["input_token_logprobs"][:2] == [[None, BOS_ID, "<s>"], [-1.0, ord("s"), "s"]]
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"] == 6
    meta = generate(call, text="say:a", return_logprob=True, logprob_start_len=6)["meta_info"]
    assert meta["input_token_logprobs"] == []
    assert meta["output_token_logprobs"][0] == [-0.5, 97, None]


def test_likeliest_tokens_and_ids_of_choice_are_listed_beside_each_logprob(call: Call) -> None:
    asked = {"top_logprobs_num": 2, "token_ids_logprob": [7, 9], "return_text_in_logprobs": True}
    meta = generate(call, text="say:a", return_logprob=True, logprob_start_len=0, **asked)["meta_info"]
    assert meta["output_top_logprobs"][0] == [[-0.5, 97, "a"], [-1.5, 98, "b"]]
    assert meta["output_token_ids_logprobs"][0] == [[-7.0, 7, "\x07"], [-9.0, 9, "\t"]]
    assert meta["input_top_logprobs"][:2] == [None, [[-1.0, ord("s"), "s"], [-2.0, ord("t"), "t"]]]
    assert meta["input_token_ids_logprobs"][0] is None
    for name in ("top_logprobs", "token_ids_logprobs", "token_logprobs"):
        assert len(meta[f"input_{name}"]) == 6
        assert len(meta[f"output_{name}"]) == 2
    meta = generate(call, text="say:a", return_logprob=True, top_logprobs_num=1)["meta_info"]
    assert meta["output_top_logprobs"][0] == [[-0.5, 97, None]]
    assert not {"input_top_logprobs", "output_token_ids_logprobs"} & meta.keys()


def test_a_batch_may_ask_for_other_log_probabilities_with_each_prompt(call: Call) -> None:
    replies = generate(
        call,
        text=["say:a", "say:b"],
        return_logprob=[True, False],
        logprob_start_len=[2, -1],
        top_logprobs_num=[1, 0],
        token_ids_logprob=[[5], None],
        priority=[3, -3],
    )
    first, second = (reply["meta_info"] for reply in replies)
    assert [entry[1] for entry in first["input_token_logprobs"]] == [*b"ay:a"]
    assert len(first["output_top_logprobs"]) == len(first["output_token_ids_logprobs"]) == 2
    assert "output_token_logprobs" not in second


def test_several_outputs_of_a_prompt_are_a_list(call: Call, stream: Callable[[Any], list[Any]]) -> None:
    sampling = {"n": 3, "sampling_seed": 11}
    replies = generate(call, text="SEED", rid="mine", sampling_params=sampling)
    texts = [reply["text"] for reply in replies]
    assert [(reply["index"], reply["meta_info"]["id"]) for reply in replies] == [(0, "mine"), (1, "mine"), (2, "mine")]
    assert texts[0] == generate(call, text="SEED", sampling_params={"sampling_seed": 11})["text"] == "11"
    assert len(set(texts)) == 3
    assert [reply["text"] for reply in generate(call, text="SEED", sampling_params=sampling)] == texts
    last = {event["index"]: event["text"] for event in stream({"text": "SEED", "sampling_params": sampling})}
    assert last == dict(enumerate(texts))
    mixed = generate(call, text=["say:a", "say:b"], sampling_params=[{"n": 2}, {}])
    assert [(reply["index"], reply["text"]) for reply in mixed] == [(0, "a"), (1, "a"), (2, "b")]


def test_aborting_a_rid_ends_all_its_outputs(call: Call) -> None:
    replies: list[Any] = []
    payload = {"text": "HANG", "rid": "many", "sampling_params": {"n": 3}}
    runner = threading.Thread(target=lambda: replies.append(call("/generate", payload)))
    runner.start()
    wait_until_running(call, count=3)
    status, reply = call("/generate", {"text": "a", "rid": "many"})
    assert (status, reply["error"]["param"]) == (400, "rid")
    assert call("/abort_request", {"rid": "many"}) == (200, {"aborted": ["many"]})
    runner.join(10)
    assert [reply["meta_info"]["finish_reason"]["type"] for reply in replies[0][1]] == ["abort"] * 3
    assert generate(call, text="say:a", rid="many")["text"] == "a"


def test_a_stop_regex_ends_the_output_and_is_never_shown(call: Call, stream: Callable[[Any], list[Any]]) -> None:
    payload = {"text": "say:foo END 12 bar", "sampling_params": {"stop_regex": ["bar", r"EN?D \d\d?"], "stop": "12"}}
    reply = generate(call, **payload)
    assert reply["text"] == "foo "
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": "END 1", "regex": r"EN?D \d\d?"}
    assert bytes(reply["text_output_ids"]).decode() + reply["text_output_tail"] == "foo "
    texts = [event["text"] for event in stream(payload)]
    assert texts[-1] == "foo "
    assert all("foo ".startswith(text) for text in texts)


def test_batch_answers_in_order(call: Call) -> None:
    replies = generate(call, text=["say:aaaa", "say:b"], sampling_params=[{"max_new_tokens": 2}, {}])
    assert [(reply["index"], reply["text"]) for reply in replies] == [(0, "aa"), (1, "b")]


def test_constraint_tells_its_compile_time(call: Call) -> None:
    reply = generate(call, text="say:a", sampling_params={"regex": "a"})
    assert reply["meta_info"]["grammar_compile_time"] == 0.25
    assert reply["meta_info"]["grammar_backend"] == "fsm"
    assert "grammar_relaxed" not in reply["meta_info"]


def test_a_lenient_request_is_told_what_is_not_enforced(call: Call) -> None:
    reply = generate(call, text="say:a", sampling_params={"json_schema": {}, "json_schema_lenient": True})
    assert reply["meta_info"]["grammar_relaxed"] == [{"path": "#/x", "reason": "is not enforced"}]


WRONG = [
    ({"text": "a", "unknown": 1}, "unknown", "invalid_request", "unknown is not a known field"),
    ({"input_ids": []}, "text", "invalid_request", "the prompt is empty"),
    ({"input_ids": [1, 266]}, "input_ids[1]", "invalid_request", "input_ids[1] is 266; it must be from 0 to 265"),
    ({"input_ids": [-1]}, "input_ids[0]", "invalid_request", "must be from 0 to 265"),
    ({"text": "a" * 300}, "text", "context_length_exceeded", "has 301 tokens; the context holds 200"),
    ({"text": ["a", "b" * 300]}, "[1].text", "context_length_exceeded", "301 tokens"),
    ({"text": "a", "sampling_params": {"regex": "("}}, "sampling_params.regex", "bad_grammar", "unclosed group"),
    (
        {"text": ["HANG", "a"], "sampling_params": [{}, {"regex": "("}]},
        "[1].sampling_params.regex",
        "bad_grammar",
        "unclosed group",
    ),
    (
        {"text": "a", "lora_path": "x"},
        "lora_path",
        "invalid_request",
        "lora_path is 'x'; it must be left out: the served model has no adapters",
    ),
    (
        {"text": "a", "top_logprobs_num": 2},
        "top_logprobs_num",
        "invalid_request",
        "is 2; it must be left out where return_logprob is false",
    ),
    (
        {"text": "a", "return_logprob": True, "token_ids_logprob": [266]},
        "token_ids_logprob",
        "invalid_request",
        "token_ids_logprob holds 266; ids go from 0 to 265",
    ),
    (
        {"text": "a", "sampling_params": {"stop_regex": ["a", "(b"]}},
        "sampling_params.stop_regex",
        "invalid_request",
        "sampling_params.stop_regex '(b': regex:",
    ),
    (
        {"text": "a", "sampling_params": {"stop_regex": r"\bEND"}},
        "sampling_params.stop_regex",
        "invalid_request",
        "must not ask for what stands around its match",
    ),
    (
        {"text": ["a", "b"], "sampling_params": [{}, {"stop_regex": "x*"}]},
        "[1].sampling_params.stop_regex",
        "invalid_request",
        "must not match the empty text",
    ),
    (
        {"text": "a", "sampling_params": {"json_schema_lenient": True, "regex": "a"}},
        "sampling_params.json_schema_lenient",
        "invalid_request",
        "is set without json_schema",
    ),
    (
        {"text": "a", "return_logprob": True, "logprob_start_len": 9},
        "logprob_start_len",
        "invalid_request",
        "is 9; the prompt has 2 tokens",
    ),
]


@pytest.mark.parametrize(("payload", "param", "code", "message"), WRONG)
def test_wrong_request_is_a_400_that_says_why(call: Call, payload: Any, param: str, code: str, message: str) -> None:
    status, reply = call("/generate", payload)
    assert status == 400
    assert (reply["error"]["param"], reply["error"]["code"]) == (param, code)
    assert message in reply["error"]["message"]
    assert generate(call, text="say:ok")["text"] == "ok"


def test_limit_itself_is_accepted(call: Call) -> None:
    reply = generate(call, text="a" * 198)
    assert reply["meta_info"]["completion_tokens"] == 1
    assert generate(call, text="a" * 199, sampling_params={"max_new_tokens": 0})["output_ids"] == []


def test_stream_grows_to_the_whole_reply(stream: Callable[[Any], list[Any]], call: Call) -> None:
    events = stream({"text": "say:h€llo wörld", "sampling_params": {"stop": "rld!"}})
    whole = generate(call, text="say:h€llo wörld")
    texts = [event["text"] for event in events]
    assert texts[-1] == whole["text"] == "h€llo wörld"
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert all("\ufffd" not in text for text in texts)
    assert [event["meta_info"]["finish_reason"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["output_ids"] == whole["output_ids"]
    assert events[-1]["text_output_ids"] == whole["text_output_ids"]


def test_batch_streams_carry_the_index(stream: Callable[[Any], list[Any]]) -> None:
    events = stream({"text": ["say:ab", "say:c"]})
    last = {event["index"]: event["text"] for event in events}
    assert last == {0: "ab", 1: "c"}
    assert sum(event["meta_info"]["finish_reason"] is not None for event in events) == 2


def test_duplicate_rid_is_refused_while_the_first_runs(call: Call) -> None:
    first: list[Any] = []
    runner = threading.Thread(target=lambda: first.append(call("/generate", {"text": "HANG", "rid": "twice"})))
    runner.start()
    wait_until_running(call)
    status, reply = call("/generate", {"text": "a", "rid": "twice"})
    assert (status, reply["error"]["param"]) == (400, "rid")
    assert call("/flush_cache", {})[1]["success"] is False
    assert call("/abort_request", {"rid": "twice"}) == (200, {"aborted": ["twice"]})
    runner.join(10)
    status, reply = first[0]
    assert status == 200
    assert reply["meta_info"]["finish_reason"] == {"type": "abort", "message": "the request was aborted"}
    assert generate(call, text="say:a", rid="twice")["text"] == "a"


def test_abort_all_ends_every_request(call: Call) -> None:
    replies: list[Any] = []
    runner = threading.Thread(target=lambda: replies.append(call("/generate", {"text": ["HANG", "HANG again"]})))
    runner.start()
    wait_until_running(call, count=2)
    assert len(call("/abort_request", {"abort_all": True})[1]["aborted"]) == 2
    runner.join(10)
    assert [reply["meta_info"]["finish_reason"]["type"] for reply in replies[0][1]] == ["abort", "abort"]
    assert call("/abort_request", {"rid": "nobody"}) == (200, {"aborted": []})
    assert call("/abort_request", {})[0] == 400
    assert call("/abort_request", {"rid": "a", "abort_all": True})[0] == 400


def wait_until_running(call: Call, count: int = 1) -> None:
    while call("/get_server_info")[1]["internal_states"][0]["num_running"] < count:
        threading.Event().wait(0.005)


def test_infos(call: Call) -> None:
    assert call("/health") == (200, {"status": "ok"})
    assert call("/get_model_info")[1] == {
        "model_path": "scripted",
        "served_model_name": "scripted",
        "is_generation": True,
        "pooling": None,
        "hidden_size": 4,
        "context_length": 200,
        "vocab_size": 266,
        "eos_token_ids": [EOS_ID],
        "bos_token_id": BOS_ID,
        "has_tokenizer": True,
        "has_chat_template": True,
        "reasoning_parser": None,
        "tool_call_parser": None,
        "weight_dtype": "none",
    }
    info = call("/get_server_info")[1]
    assert info["max_running_requests"] == 256
    assert info["context_length"] == 200
    assert info["internal_states"][0]["num_running"] == 0


def test_tokenize_roles_and_flush(call: Call) -> None:
    assert call("/tokenize", {"text": "ab"}) == (200, {"tokens": [97, 98], "count": 2})
    assert call("/tokenize", {"text": "ab", "add_special_tokens": True})[1]["tokens"] == [BOS_ID, 97, 98]
    assert call("/tokenize", {"text": ["ab", "", "c"]}) == (200, {"tokens": [[97, 98], [], [99]], "count": [2, 0, 1]})
    assert call("/tokenize", {"text": 3})[1]["error"]["param"] == "text"
    assert call("/tokenize", {"text": ["a", 3]})[1]["error"]["param"] == "text[1]"
    assert call("/tokenize", {"texts": "a"})[1]["error"]["param"] == "texts"
    messages = [{"role": "user", "content": "hi"}]
    assert call("/role_affixes", {"messages": messages, "role": "user"}) == (
        200,
        {"prefix": "<turn>user\n", "suffix": "<end>"},
    )
    assert call("/role_affixes", {"messages": [{"role": "user"}], "role": "user"})[1]["error"]["param"] == (
        "messages[0].content"
    )
    assert call("/flush_cache", {}) == (200, {"success": True, "message": "flushed"})
