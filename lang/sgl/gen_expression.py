"""build_gen, build_select: from what a user gives to `gen` and `select`, checked, to nodes."""

from collections.abc import Callable, Sequence
from typing import Any

from sgl.choices import check_choices_method
from sgl.constraints import (
    Constraint,
    dtype_constraint,
    ebnf_constraint,
    regex_constraint,
    schema_constraint,
    structural_tag_constraint,
)
from sgl.errors import ArgumentError, reject
from sgl.ir import Gen, Select, ToolGen, caller_source
from sgl.output_types import OutputType, output_type
from sgl.sampling import SAMPLING_FIELDS, check_sampling
from sgl.tools import ToolSet

CONSTRAINTS: dict[str, Callable[[Any], Constraint]] = {
    "dtype": dtype_constraint,
    "regex": regex_constraint,
    "json_schema": schema_constraint,
    "ebnf": ebnf_constraint,
    "structural_tag": structural_tag_constraint,
}
SHOWN_AS = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}
TOOL_OPTIONS = ("tool_choice", "parallel_tool_calls", "run_tools")
EXCLUSIVE = ("type", *CONSTRAINTS, "tools")


def build_gen(options: dict[str, Any]) -> Gen | Select:
    """The node of `gen(**options)`.

    Args:
        options: The arguments of `gen`; None means not given.

    Raises:
        ArgumentError: a value is wrong, or options exclude each other.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "choices" in given:
        _reject_beside_choices(given)
        return build_select(given.get("name"), given["choices"], given.get("choices_method"))
    if "choices_method" in given:
        raise ArgumentError("choices_method is given without choices")
    exclusive = [name for name in EXCLUSIVE if name in given]
    if len(exclusive) > 1:
        raise ArgumentError(f"gen sets {' and '.join(exclusive)}; set at most one of them")
    post = given.get("post")
    if post is not None and not callable(post):
        raise reject("post", post, "a function of the text")
    settings = {name: given[SHOWN_AS.get(name, name)] for name in SAMPLING_FIELDS if SHOWN_AS.get(name, name) in given}
    sampling = check_sampling(settings, shown_as=SHOWN_AS)
    toolset = _toolset(given)
    if toolset is not None and sampling.n not in (None, 1):
        raise ArgumentError(f"gen sets tools and n = {sampling.n}; a gen with tools has one output")
    constraint, kind = _constraint(given)
    node = Gen(
        name=_check_name(given.get("name")),
        sampling=sampling,
        constraint=constraint if toolset is None else Constraint("json_schema", toolset.schema()),
        output_type=kind,
        post=post,
        timeout_s=_check_timeout(given.get("timeout_s")),
        source=caller_source(),
    )
    return node if toolset is None else ToolGen(**node.__dict__, toolset=toolset)


def build_select(name: Any, choices: Any, method: Any) -> Select:
    """The node of a select.

    Raises:
        ArgumentError: a value is wrong.
    """
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise reject("choices", choices, "a non-empty list of strings")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice:
            raise reject(f"choices[{index}]", choice, "a non-empty string")
        if choice in choices[:index]:
            raise ArgumentError(f"choices[{index}] is {choice!r}, which is in choices twice")
    return Select(
        name=_check_name(name),
        choices=tuple(choices),
        method=None if method is None else check_choices_method(method),
        source=caller_source(),
    )


def _check_name(name: Any) -> str | None:
    if name is not None and (not isinstance(name, str) or not name):
        raise reject("name", name, "a non-empty string, or None")
    return name


def _check_timeout(timeout_s: Any) -> float | None:
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise reject("timeout_s", timeout_s, "a number of seconds above 0")
    return float(timeout_s)


def _constraint(given: dict[str, Any]) -> tuple[Constraint | None, OutputType | None]:
    if "type" in given:
        kind = output_type(given["type"])
        return kind.constraint, kind
    name = next((name for name in CONSTRAINTS if name in given), None)
    return (None if name is None else CONSTRAINTS[name](given[name])), None


def _toolset(given: dict[str, Any]) -> ToolSet | None:
    if "tools" in given:
        return ToolSet.checked(given["tools"], *(given.get(name) for name in TOOL_OPTIONS))
    for name in TOOL_OPTIONS:
        if name in given:
            raise ArgumentError(f"{name} is given without tools")
    return None


def _reject_beside_choices(given: dict[str, Any]) -> None:
    for name in given:
        if name not in ("name", "choices", "choices_method"):
            raise ArgumentError(f"gen sets choices and {name}; a gen with choices takes only name and choices_method")
