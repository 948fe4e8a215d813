"""Texts as models of each tool format write them, whole and broken, and what they hold."""

from dataclasses import dataclass
from typing import Any

SCHEMAS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"type": "string"}},
        "required": ["city"],
    },
    "add": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    "now": {},
}
LONG = "x" * 300


@dataclass(frozen=True)
class Case:
    """A text; the names and arguments of its calls, its answer and its thinking."""

    format: str
    text: str
    calls: tuple[tuple[str, Any], ...] = ()
    content: str = ""
    reasoning: str = ""


PARIS = ("get_weather", {"city": "Paris"})
SUM = ("add", {"a": 1, "b": 2.5})
V3_CALL = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
V3_PARIS = V3_CALL.format("get_weather", '{"city": "Paris"}')
V3_SUM = V3_CALL.format("add", '{"a": 1, "b": 2.5}')
V3_BEGIN, V3_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
HARMONY_CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
XML_PARIS = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>"

KIMI_CALL = "<|tool_call_begin|>functions.{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
GLM_PARIS = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"

WHOLE = [
    Case(
        "kimi_k2",
        "Both.<|tool_calls_section_begin|>"
        + KIMI_CALL.format("get_weather:0", '{"city": "Paris"}')
        + KIMI_CALL.format("add:1", ' {"a": 1, "b": 2.5} ')
        + "<|tool_calls_section_end|>",
        (PARIS, SUM),
        content="Both.",
    ),
    Case("glm45", GLM_PARIS + "</tool_call>", (PARIS,)),
    Case("glm45", GLM_PARIS, (PARIS,)),
    Case(
        "glm45",
        "See:\n"
        + GLM_PARIS
        + "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        (("get_weather", {"city": "Paris", "days": 3}), ("now", {})),
        content="See:",
    ),
    Case("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', (PARIS,)),
    Case(
        "hermes",
        "I look it up.\n\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2.5}}\n</tool_call>\n',
        (PARIS, SUM),
        content="I look it up.",
    ),
    Case("hermes", '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', (PARIS,)),
    Case("hermes", '<tool_call>{"id": 7, "name": "now"}</tool_call>', (("now", {}),)),
    Case("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', (("now", {}),)),
    Case("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}', (PARIS,)),
    Case(
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        (PARIS,),
    ),
    Case(
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "a\nb\t\\"</tool_call> é"}}</tool_call>',
        (("get_weather", {"city": 'a\nb\t"</tool_call> é'}),),
    ),
    Case(
        "hermes",
        f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{LONG}"}}}}</tool_call>',
        (("get_weather", {"city": LONG}),),
    ),
    Case("llama3", '{"name": "get_weather", "parameters": {"city": "Paris"}}', (PARIS,)),
    Case("llama3", '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}', (PARIS,)),
    Case("llama3", '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}', (PARIS,)),
    Case(
        "llama3",
        '{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "add", "parameters": {"a": 1, "b": 2.5}}',
        (PARIS, SUM),
    ),
    Case("llama3", "Paris it is: {1, 2}", content="Paris it is: {1, 2}"),
    Case("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', (PARIS,)),
    Case(
        "mistral",
        'Well.[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"}, '
        '{"name": "add", "arguments": {"a": 1, "b": 2.5}}]',
        (PARIS, SUM),
        content="Well.",
    ),
    Case("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', (PARIS,)),
    Case("mistral", '[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "Paris"}', (PARIS,)),
    Case("mistral", '[TOOL_CALLS]get_weather{"city": "Paris"}[TOOL_CALLS]add{"a": 1, "b": 2.5}', (PARIS, SUM)),
    Case("pythonic", '[get_weather(city="Paris")]', (PARIS,)),
    Case("pythonic", "[get_weather(city='Paris'), add(a=1, b=2.5)]", (PARIS, SUM)),
    Case("pythonic", '<|python_start|>[get_weather(city="Paris")]<|python_end|>', (PARIS,)),
    Case(
        "pythonic",
        '[get_weather(city="a)], \\"b", units=None, days=-3), now()]',
        (("get_weather", {"city": 'a)], "b', "units": None, "days": -3}), ("now", {})),
    ),
    Case("pythonic", "[add(a=[1, {'k': true}], b=(1, 2))]", (("add", {"a": [1, {"k": True}], "b": [1, 2]}),)),
    Case("deepseekv3", f"{V3_BEGIN}{V3_PARIS}{V3_END}", (PARIS,)),
    Case("deepseekv3", f"Let me see.{V3_BEGIN}{V3_PARIS}\n{V3_SUM}{V3_END}", (PARIS, SUM), content="Let me see."),
    Case("deepseekv3", f"{V3_BEGIN}{V3_PARIS.removesuffix('<｜tool▁call▁end｜>')}", (PARIS,)),
    Case(
        "deepseekv31",
        f'{V3_BEGIN}<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{{"city": "Paris"}}<｜tool▁call▁end｜>'
        f'<｜tool▁call▁begin｜>add<｜tool▁sep｜>{{"a": 1, "b": 2.5}}<｜tool▁call▁end｜>{V3_END}',
        (PARIS, SUM),
    ),
    Case("qwen3_coder", f"<tool_call>\n{XML_PARIS}\n</tool_call>", (PARIS,)),
    Case("qwen3_coder", XML_PARIS, (PARIS,)),
    Case(
        "qwen3_coder",
        "First.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n12\n"
        "</parameter>\n<parameter=units>\ntwo\nlines <b>\n</parameter>\n</function>\n</tool_call>",
        (("get_weather", {"city": "12", "days": 12, "units": "two\nlines <b>"}),),
        content="First.",
    ),
    Case("qwen3_coder", "<tool_call>\n<function=now>\n</function>\n</tool_call>", (("now", {}),)),
    Case(
        "gpt-oss",
        "<|channel|>analysis<|message|>Weather? Call it.<|end|><|start|>assistant"
        + HARMONY_CALL
        + '{"city": "Paris"}<|call|>',
        (PARIS,),
        reasoning="Weather? Call it.",
    ),
    Case(
        "gpt-oss",
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>Hold on."
        '<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}',
        (PARIS,),
        content="Hold on.",
        reasoning="One.",
    ),
    Case(
        "gpt-oss",
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is <b>fine</b>.",
        content="It is <b>fine</b>.",
        reasoning="One.\nTwo.",
    ),
    Case("gpt-oss", ' to=functions.get_weather<|channel|>commentary<|message|>{"city": "Paris"}', (PARIS,)),
]

# What holds no call stays as it is.
BROKEN = {
    "hermes": [
        "plain text, 1 < 2 <tool",
        "<tool_call>",
        "<tool_call>not json</tool_call>",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": }}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
        "<tool_call>{'name': 'get_weather', 'arguments': {}}</tool_call>",
        '<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": "not json"}</tool_call>',
        '<tool_call>{"name": 5}</tool_call> and more text',
        '<tool_call>{"arguments": {}}</tool_call>',
        "<tool_call>{}</tool_call>",
        "</tool_call> <tool_call>  ",
        '<tool_call>{"name": "add", "arguments": {"a": 01}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": "\\x"}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": [}]}}</tool_call>',
        "<tool_call>" + '{"name": "add", "arguments": {"a": ' + "[" * 200,
    ],
    "llama3": [
        '{"answer": 42}',
        '<|python_tag|>brave_search.call(query="x")',
        '{"name": "unknown", "parameters": {}}',
        '  {"name": "get_weather"',
        'I would call {"name": "get_weather", "parameters": {"city": "Paris"}}',
    ],
    "mistral": [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] what now?\nnothing",
        '[TOOL_CALLS][{"name": "get_weather"',
        '[TOOL_CALLS]unknown[ARGS]{"a": 1}',
        "[TOOL_CALLS]get_weather[ARGS]5",
        "[TOOL_CALLS]get_weather[WHAT]{}",
    ],
    "pythonic": [
        "[1, 2, 3]",
        "[get_weather",
        "[get_weather('Paris')]",
        "[get_weather(**x)]",
        "[get_weather(city=open('x'))]",
        "[unknown(a=1)]",
        '[get_weather(city="Par',
        "[get_weather(city=)]",
        "[add(a=1e999)]",
        "[add(a={1: 2})]",
        "[add(a=" + "(" * 100 + ")" * 100 + ")]",
        "text [get_weather(city='Paris')]",
    ],
    "deepseekv3": [
        V3_BEGIN,
        f"{V3_BEGIN}nothing{V3_END}",
        f"{V3_BEGIN}<｜tool▁call▁begin｜>get_weather",
        f"{V3_BEGIN}{V3_CALL.format('unknown', '{}')}{V3_END}",
        f"{V3_BEGIN}{V3_CALL.format('get_weather', '5')}{V3_END}",
    ],
    "kimi_k2": [
        "<|tool_calls_section_begin|><|tool_calls_section_end|>",
        "<|tool_calls_section_begin|>" + KIMI_CALL.format("unknown:0", "{}"),
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0",
    ],
    "glm45": [
        "<tool_call>unknown</tool_call>",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\nParis",
        "<tool_call>get_weather\n<arg_key>city",
        "<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>Paris</arg_value> what?",
    ],
    "qwen3_coder": [
        "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
        "<function=get_weather>\n<parameter=city>\nPar",
        "<function=get_weather>\nwhat?",
        "<tool_call>\nno function\n</tool_call>",
    ],
    "gpt-oss": [
        "no channel at all",
        "<|channel|>",
        "<|channel|>commentary to=functions.get_weather",
        "<|channel|>" + "z" * 400,
    ],
}
