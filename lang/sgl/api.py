"""The expressions of programs: gen, select, roles; and calls to the default backend."""

from collections.abc import Callable, Sequence
from typing import Any

from sgl.choices import ChoicesMethod, token_length_normalized
from sgl.constraints import Constraint, dtype_constraint, regex_constraint, schema_constraint
from sgl.default_backend import resolve_backend
from sgl.errors import ArgumentError, reject
from sgl.event_loop import event_loop_thread
from sgl.ir import Concat, Gen, Role, RoleBegin, RoleEnd, Select, caller_source, flatten
from sgl.output_types import OutputType, output_type
from sgl.sampling import check_sampling


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    *,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: int | Sequence[int] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    type: Any = None,  # noqa: A002 - the word that users expect
    dtype: Any = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesMethod | None = None,
    regex: str | None = None,
    json_schema: Any = None,
    post: Callable[[Any], Any] | None = None,
) -> Gen | Select:
    """Call the model: what it generates is appended to the state and kept in a variable.

    What is None is taken from the run.  Values are checked here, not when the gen runs.

    Args:
        name: Variable for the output, read with `s[name]`; always a string.
        max_tokens: Limit on generated tokens.
        stop: Strings that end the output.  The match is left out of variable and text.
        stop_token_ids: Token ids that end the output.
        temperature: 0 picks the most likely token.
        top_p: Keep the most likely tokens up to this sum of probability.
        top_k: Keep this many of the most likely tokens; -1 keeps all.
        min_p: Keep tokens of at least this share of the highest probability.
        seed: Sent as it is; a seed given to `run` becomes another one for each gen and each fork.
        ignore_eos: Go on after the model's end of sequence.
        return_logprob: Put log probabilities of the output into `get_meta_info`.
        type: The output is written as this Python type and the variable holds a value of it: int, float, bool, date,
            time, datetime, a Literal, an Enum, None in unions of these; and as JSON whatever pydantic can validate
            (list, dict, dataclass, TypedDict, model).  An output that was cut raises `TruncatedError` where it is read;
            `s.get(name, str)` is the text.
        dtype: int, float, bool or str: the output is written like a Python literal of this type (and stays a string).
        choices: Pick one of these strings; the same as `select`, and goes with nothing but name and choices_method.
        choices_method: See `select`.
        regex: The whole output matches it.
        json_schema: The output is an instance: a JSON Schema as a dict or as JSON text, or a pydantic model class.
        post: Makes the variable's value out of the text (or of the typed value); the text of the state stays.

    Raises:
        ArgumentError: a value is wrong, or two of type, dtype, choices, regex and json_schema are given.
    """
    ends = {"max_new_tokens": max_tokens, "stop": stop, "stop_token_ids": stop_token_ids, "ignore_eos": ignore_eos}
    draws = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "seed": seed}
    sampling = {**ends, **draws, "return_logprob": return_logprob}
    constraints = {"type": type, "dtype": dtype, "regex": regex, "json_schema": json_schema}
    if choices is not None:
        _reject_beside_choices({**sampling, **constraints, "post": post})
        return _select(name, choices, choices_method)
    if choices_method is not None:
        raise ArgumentError("choices_method is given without choices")
    if post is not None and not callable(post):
        raise reject("post", post, "a function of the text")
    constraint, kind = _constraint(constraints)
    return Gen(
        name=_check_name(name),
        sampling=check_sampling(sampling, shown_as={"max_new_tokens": "max_tokens"}),
        constraint=constraint,
        output_type=kind,
        post=post,
        source=caller_source(),
    )


def gen_int(name: str | None = None, max_tokens: int | None = None, **options: Any) -> Gen | Select:
    """`gen(dtype=int)`: an integer, as a string of digits; the other options are those of `gen`."""
    return gen(name, max_tokens, dtype=int, **_plain_options("gen_int", options))


def gen_string(name: str | None = None, max_tokens: int | None = None, **options: Any) -> Gen | Select:
    """`gen(dtype=str)`: text in double quotes; the other options are those of `gen`."""
    return gen(name, max_tokens, dtype=str, **_plain_options("gen_string", options))


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: ChoicesMethod | None = None,
) -> Select:
    """Let the model pick one of several strings by how likely they are; the pick is appended to the state.

    Scores cover exactly the tokens that depend on the choice, over the joint tokenization of text and choice: neither
    the order of the choices nor where the program splits its text makes a difference.  `s.get_meta_info(name)` has
    `scores`, `probabilities` (of the exact choices, sum 1) and the log probability of every token.

    Args:
        name: Variable for the pick, read with `s[name]`.
        choices: At least one, distinct, none empty.
        temperature: Only 0.0 makes sense, as nothing is sampled.
        choices_method: `token_length_normalized` (the default), `greedy_token_selection`,
            `unconditional_likelihood_normalized`, or an object of your own (see `ChoicesMethod`).

    Raises:
        ArgumentError: a value is wrong.
    """
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0.0 <= temperature <= 1e-5:
        raise reject("temperature", temperature, "0.0 in a select, as nothing is sampled")
    return _select(name, choices, choices_method)


def system(expr: Any = None) -> Concat:
    """A system message with this content (text or an expression; none: an empty message)."""
    return _message("system", expr)


def user(expr: Any = None) -> Concat:
    """A user message with this content (text or an expression; none: an empty message)."""
    return _message("user", expr)


def assistant(expr: Any = None) -> Concat:
    """An assistant message with this content (text or an expression; none: an empty message)."""
    return _message("assistant", expr)


def system_begin() -> RoleBegin:
    """Opens a system message."""
    return RoleBegin("system")


def system_end() -> RoleEnd:
    """Closes the system message."""
    return RoleEnd("system")


def user_begin() -> RoleBegin:
    """Opens a user message."""
    return RoleBegin("user")


def user_end() -> RoleEnd:
    """Closes the user message."""
    return RoleEnd("user")


def assistant_begin() -> RoleBegin:
    """Opens an assistant message."""
    return RoleBegin("assistant")


def assistant_end() -> RoleEnd:
    """Closes the assistant message."""
    return RoleEnd("assistant")


def flush_cache(backend: Any | None = None) -> bool:
    """Empty the prefix cache of a backend, by default the default one; False where it refused because requests run."""
    return event_loop_thread().wait(resolve_backend(backend).flush_cache())


def get_server_info(backend: Any | None = None) -> dict[str, Any]:
    """Configuration and counters of a backend's server, by default the default one's."""
    return event_loop_thread().wait(resolve_backend(backend).get_server_info())


def _message(role: Role, expr: Any) -> Concat:
    content = () if expr is None else flatten(expr)
    return Concat((RoleBegin(role), *content, RoleEnd(role)))


def _select(name: str | None, choices: Any, method: ChoicesMethod | None) -> Select:
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise reject("choices", choices, "a non-empty list of strings")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice:
            raise reject(f"choices[{index}]", choice, "a non-empty string")
        if choice in choices[:index]:
            raise ArgumentError(f"choices[{index}] is {choice!r}, which is in choices twice")
    if method is not None and not callable(method):
        raise reject("choices_method", method, "a choices method such as sgl.greedy_token_selection")
    return Select(
        name=_check_name(name),
        choices=tuple(choices),
        method=method or token_length_normalized,
        source=caller_source(),
    )


def _check_name(name: Any) -> str | None:
    if name is not None and (not isinstance(name, str) or not name):
        raise reject("name", name, "a non-empty string, or None")
    return name


def _constraint(constraints: dict[str, Any]) -> tuple[Constraint | None, OutputType | None]:
    given = [name for name, value in constraints.items() if value is not None]
    if len(given) > 1:
        raise ArgumentError(f"gen sets {' and '.join(given)}; set at most one of them")
    if not given:
        return None, None
    if given[0] == "type":
        kind = output_type(constraints["type"])
        return kind.constraint, kind
    check = {"dtype": dtype_constraint, "regex": regex_constraint, "json_schema": schema_constraint}[given[0]]
    return check(constraints[given[0]]), None


def _reject_beside_choices(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is not None:
            shown = "max_tokens" if name == "max_new_tokens" else name
            raise ArgumentError(f"gen sets choices and {shown}; a gen with choices takes only name and choices_method")


def _plain_options(function: str, options: dict[str, Any]) -> dict[str, Any]:
    for name in ("type", "dtype", "choices", "choices_method", "regex", "json_schema"):
        if name in options:
            raise TypeError(f"{function} has no option {name!r}: the type is its constraint")
    return options
