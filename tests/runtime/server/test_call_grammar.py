"""Grammars of tool calls, enforced by both backends."""

import json
from typing import Any

import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler
from sgl_runtime.server.chat.call_grammar import answer_or_calls, call_list
from sgl_runtime.server.chat.chat_call import FunctionTool
from sgl_runtime.server.tool_parsers.hermes import HERMES

BYTES = GrammarVocabulary((None, *(bytes([byte]) for byte in range(256))), frozenset({0}), 257)
TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
}
ANSWER = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


def tool(name: str, parameters: dict[str, Any]) -> FunctionTool:
    return FunctionTool(name=name, definition={"name": name}, parameters=parameters)


TOOLS = [tool("tree", TREE), tool("other", {**TREE, "properties": {"root": {"type": "null"}}}), tool("none", {})]


def accepts(kind: Any, text: str, output: str, *, backend: Any = "auto") -> bool:
    """Whether the output is taken to its end, and may end there."""
    compiler = GrammarCompiler(BYTES, GrammarConfig(grammar_backend=backend))
    try:
        state = compiler.compile(GrammarSpec(kind, text)).new_state()
        return all(state.advance(byte + 1) for byte in output.encode()) and state.can_end()
    finally:
        compiler.close()


@pytest.mark.parametrize("backend", ["fsm", "llguidance"])
def test_a_list_of_calls_holds_every_function_to_its_own_schema(backend: str) -> None:
    text = json.dumps(call_list(TOOLS, None))
    for output, wanted in (
        ('[{"name": "tree", "parameters": {"root": [[], [[]]]}}]', True),
        ('[{"name": "other", "parameters": {"root": null}}, {"name": "none", "parameters": {}}]', True),
        ('[{"name": "tree", "parameters": {"root": null}}]', False),
        ('[{"name": "none", "parameters": {"a": 1}}]', False),
        ('[{"name": "what", "parameters": {}}]', False),
        ("[]", False),
    ):
        assert accepts("json_schema", text, output, backend=backend) == wanted, output


def test_one_call_alone() -> None:
    text = json.dumps(call_list(TOOLS, 1))
    one = '{"name": "none", "parameters": {}}'
    assert accepts("json_schema", text, f"[{one}]")
    assert not accepts("json_schema", text, f"[{one}, {one}]")


@pytest.mark.parametrize("is_one_call", [True, False])
def test_an_answer_or_calls(is_one_call: bool) -> None:
    text = answer_or_calls(ANSWER, TOOLS, HERMES, is_one_call=is_one_call)
    call = '<tool_call>\n{"name": "tree", "arguments": {"root": [[]]}}\n</tool_call>'
    for output, wanted in (
        ('{"x": 5}', True),
        (call, True),
        (f"{call}\n{call}", not is_one_call),
        ('{"x": 5}' + call, False),
        ('<tool_call>\n{"name": "tree", "arguments": {"root": 5}}\n</tool_call>', False),
        ("text", False),
    ):
        assert accepts("ebnf", text, output) == wanted, output
