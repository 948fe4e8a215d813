"""Tools: Python functions that a model may call, as `gen(tools=[...])` takes them, and the calls that come of it.

A call is written as JSON, `{"name": ..., "arguments": {...}}`, between the marks that many open models are trained on.
The arguments are constrained by the function's signature and validated by pydantic.
"""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from sgl.errors import ArgumentError, reject

CALL_OPEN, CALL_CLOSE = "<tool_call>\n", "\n</tool_call>"
RESULT_OPEN, RESULT_CLOSE = "\n<tool_response>\n", "\n</tool_response>\n"
CALL_MARK = "<tool_call>"

BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Tool:
    """A function with the schema of its arguments.

    Args:
        function: Plain or async; every parameter has a type and can be given by name.

    Raises:
        ArgumentError: it is no such function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function) or isinstance(function, type):
            raise reject("tools", function, "functions")
        self.function = function
        self.name: str = function.__name__
        self.description = inspect.getdoc(function) or ""
        self._model = _arguments_model(self.name, function)
        # Imported here: programs without tools do not pay for loading it.
        from sgl.output_schema import OutputSchema

        self.schema: dict[str, Any] = self._model.model_json_schema(schema_generator=OutputSchema)
        self.schema["additionalProperties"] = False

    @property
    def is_async(self) -> bool:
        """Whether the function is written with `async def`."""
        return inspect.iscoroutinefunction(self.function)

    def call_schema(self) -> dict[str, Any]:
        """The schema of a call.  Definitions of the arguments stand at its top: see `ToolSet.schema`."""
        arguments = {name: value for name, value in self.schema.items() if name not in ("$defs", "title")}
        return {
            "type": "object",
            "properties": {"name": {"const": self.name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }

    def read_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Typed arguments by parameter.

        Raises:
            ValueError: they do not fit.
        """
        checked = self._model.model_validate(arguments)
        fields = self._model.model_fields
        given = {field.alias or name: name for name, field in fields.items() if name in checked.model_fields_set}
        return {parameter: checked.__dict__[name] for parameter, name in given.items()}


@dataclass
class ToolCall:
    """A call that the model wants.

    Attributes:
        tool: The tool.
        arguments: Typed values by parameter.
        result: What the function returned, after it ran.
        error: What it raised.
        is_run: Whether it ran.
    """

    tool: Tool
    arguments: dict[str, Any]
    result: Any = None
    error: Exception | None = None
    is_run: bool = False

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.tool.name

    def __call__(self) -> Any:
        """Run the function; for an async one, what is to be awaited."""
        return self.tool.function(**self.arguments)

    def shown_result(self) -> str:
        """The result as the model gets to see it."""
        if self.error is not None:
            return json.dumps({"name": self.name, "error": f"{type(self.error).__name__}: {self.error}"})
        return json.dumps({"name": self.name, "result": self.result}, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class ToolCalls:
    """The value of a gen with tools.

    Attributes:
        text: What the model wrote before the calls, or in place of them.
        calls: In order; empty where it called none.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()

    def __iter__(self) -> Any:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)


@dataclass(frozen=True)
class ToolSet:
    """The tools of one gen and how they may be called; its variable is a `ToolCalls`.

    Attributes:
        tools: By name; a function's parameters all have types.
        choice: `tool_choice`: "auto" (the model decides), "required" (at least one), or the one that it must call.
        is_parallel: `parallel_tool_calls`: whether there may be several calls, written as a list.
        is_automatic: `run_tools`: whether calls are run and their results appended.
    """

    tools: dict[str, Tool] = field(hash=False)
    choice: str
    is_parallel: bool
    is_automatic: bool

    @classmethod
    def checked(cls, tools: Any, choice: Any, is_parallel: Any, is_automatic: Any) -> "ToolSet | None":
        """The tool set of user values; None where `choice` is "none".

        Raises:
            ArgumentError: a value is wrong, or two tools have one name.
        """
        if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
            raise reject("tools", tools, "a non-empty list of functions")
        by_name: dict[str, Tool] = {}
        for function in tools:
            tool = function if isinstance(function, Tool) else Tool(function)
            if tool.name in by_name:
                raise ArgumentError(f"tools holds two functions of the name {tool.name!r}")
            by_name[tool.name] = tool
        if callable(choice):
            choice = choice.__name__
        allowed = ("auto", "required", "none", *by_name)
        if choice is not None and choice not in allowed:
            raise reject("tool_choice", choice, "one of " + ", ".join(map(repr, allowed)))
        for name, value in (("parallel_tool_calls", is_parallel), ("run_tools", is_automatic)):
            if value is not None and not isinstance(value, bool):
                raise reject(name, value, "True or False")
        if choice == "none":
            return None
        return cls(by_name, choice or "auto", bool(is_parallel), bool(is_automatic))

    def schema(self) -> str:
        """The JSON Schema of what stands between the marks, as JSON text."""
        names = [self.choice] if self.choice in self.tools else list(self.tools)
        calls = [self.tools[name].call_schema() for name in names]
        schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if self.is_parallel:
            schema = {"type": "array", "items": schema, "minItems": 1}
        definitions: dict[str, Any] = {}
        for name in names:
            for key, value in self.tools[name].schema.get("$defs", {}).items():
                if definitions.setdefault(key, value) != value:
                    raise ArgumentError(f"two of the tools use different types of the name {key!r}")
        return json.dumps({**schema, "$defs": definitions} if definitions else schema)

    def read(self, text: str) -> tuple[ToolCall, ...]:
        """The calls that a text between the marks says.

        Raises:
            ValueError: it says none.
        """
        data = json.loads(text)
        calls = []
        for item in data if self.is_parallel else [data]:
            if not isinstance(item, dict) or item.get("name") not in self.tools:
                raise ValueError(f"{item!r} is no call of {', '.join(self.tools)}")
            tool = self.tools[item["name"]]
            calls.append(ToolCall(tool, tool.read_arguments(item.get("arguments", {}))))
        return tuple(calls)


def describe_tools(tools: Sequence[Callable[..., Any]]) -> str:
    """Text for a system message that tells a model which tools it has and how it writes a call.

    Args:
        tools: The functions that are given to `gen(tools=...)`.
    """
    lines = [
        json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.schema}, ensure_ascii=False)
        for tool in map(Tool, tools)
    ]
    example = CALL_OPEN + '{"name": "...", "arguments": {...}}' + CALL_CLOSE
    return "You can call these functions, one JSON description a line:\n{}\nTo call one, write\n{}\n".format(
        "\n".join(lines), example
    )


def _arguments_model(name: str, function: Callable[..., Any]) -> Any:
    # Imported here: programs without tools do not pay for loading it.
    from pydantic import ConfigDict, Field, PydanticUserError, create_model

    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind not in BY_KEYWORD:
            raise ArgumentError(f"tool {name!r}: parameter {parameter} cannot be given by name")
        if parameter.name not in hints:
            raise ArgumentError(f"tool {name!r}: parameter {parameter.name!r} has no type")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        # An alias, as pydantic has words of its own that parameters may be called by.
        fields[f"p{index}"] = (hints[parameter.name], Field(default, alias=parameter.name))
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except PydanticUserError as error:
        raise ArgumentError(f"tool {name!r} has no JSON Schema: {error}") from error
    return model
