"""The expressions of programs: gen, select, roles; and calls to the default backend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sgl.choices import ChoicesMethod
from sgl.default_backend import resolve_backend
from sgl.errors import reject
from sgl.event_loop import event_loop_thread
from sgl.gen_expression import build_gen, build_select
from sgl.ir import Concat, Gen, Media, Role, RoleBegin, RoleEnd, Select, flatten
from sgl.media import image_media, video_media
from sgl.reasoning import REASONING_PARSERS, Thinking
from sgl.sampling import check_sampling


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: int | Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: Any = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesMethod | None = None,
    regex: str | None = None,
    json_schema: Any = None,
    *,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    seed: int | None = None,
    token_ids_logprob: int | Sequence[int] | None = None,
    priority: int | None = None,
    extra_key: str | None = None,
    return_hidden_states: bool | None = None,
    custom_logit_processor: str | None = None,
    custom_params: Mapping[str, Any] | None = None,
    lora_path: str | None = None,
    json_schema_lenient: bool | None = None,
    type: Any = None,  # noqa: A002 - the word that users expect
    ebnf: str | None = None,
    structural_tag: Any = None,
    tools: Sequence[Callable[..., Any]] | None = None,
    tool_choice: Any = None,
    parallel_tool_calls: bool | None = None,
    run_tools: bool | None = None,
    post: Callable[[Any], Any] | None = None,
    timeout_s: float | None = None,
) -> Gen | Select:
    """Call the model: its output is appended to the state and kept in a variable, read with `s[name]`.

    Options left at None are taken from the run.  Values are checked here, not when the gen runs.

    Args:
        name: The variable.
        max_tokens, min_tokens: Limits on the number of generated tokens.
        n: How many outputs are drawn.  With more than one the variable is a list of them, each read as the gen says;
            text and state go on with the first, which is also what streams.
        stop, stop_token_ids: Strings and token ids that end the output; the match is left out of variable and text.
        stop_regex: One or several regexes: the output ends as soon as something in it matches, and is cut where the
            match begins.  No match of the empty text, no conditions on what stands around (anchors, look-arounds).
        temperature, top_p, top_k, min_p, ignore_eos: As in `run`.
        frequency_penalty, presence_penalty, repetition_penalty, logit_bias: See `SamplingParams`.
        seed: Sent as it is; a seed given to `run` becomes another one for each gen and each fork.
        return_logprob: Put log probabilities of the output into `get_meta_info`.
        logprob_start_len, top_logprobs_num, token_ids_logprob, return_text_in_logprobs, priority, extra_key,
            return_hidden_states, custom_logit_processor, custom_params, lora_path: See `SamplingParams`.
        type: A Python type; the output is written as it and the variable holds a value of it (see `OutputType`).
        dtype: int, float, bool or str: the output is written like a literal of this type (and stays a string).
        choices, choices_method: Pick one of these strings; the same as `select`.
        regex: The whole output matches it.
        json_schema: The output is an instance: a JSON Schema as a dict or as JSON text, or a pydantic model class.
        json_schema_lenient: See `SamplingParams`.
        ebnf, structural_tag: A grammar, or a structural tag as a dict or JSON text, that the server enforces.
        tools, tool_choice, parallel_tool_calls, run_tools: Functions that the model may call (see `ToolSet`).
        post: Makes the variable's value out of the text (or of the typed value); the text of the state stays.
        timeout_s: Seconds for the request; when they are over it is aborted, and the state fails.

    Raises:
        ArgumentError: a value is wrong, or two of type, dtype, choices, regex, json_schema, ebnf, structural_tag and
            tools are given.
    """
    return build_gen(locals())


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
    the order of the choices nor where the program splits its text makes a difference.  `s.choice(name)` has the
    scores and the probabilities of all choices, `s.get_meta_info(name)` the log probability of every token too.

    Args:
        name: Variable for the pick, read with `s[name]`.
        choices: At least one, distinct, none empty.
        temperature: Only 0.0 makes sense, as nothing is sampled.
        choices_method: `token_length_normalized` (the default; prefers long choices with predictable ends),
            `greedy_token_selection`, `unconditional_likelihood_normalized`, `exact_sequence_probability` (no bias to
            any length), or an object of your own (see `ChoicesMethod`); None for what the run or `global_config` says.

    Raises:
        ArgumentError: a value is wrong.
    """
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0.0 <= temperature <= 1e-5:
        raise reject("temperature", temperature, "0.0 in a select, as nothing is sampled")
    return build_select(name, choices, choices_method)


def separate_reasoning(
    expr: Any = None, model_type: str | None = None, max_thinking_tokens: int | None = None
) -> Concat:
    """Tell the thinking of a model from its answers: the gens in `expr` think first.

    Afterwards variable `x` holds the answer of `gen("x")`, and `x_reasoning_content` the thinking; both can be
    streamed.  A gen makes two requests: free text up to the mark that ends the thinking, then the gen as it stands.  So
    its constraint, type, tools and stops are for the answer alone, which comes also where the limit cut the thinking.
    The thinking stays in `text()`; it is not part of the message, and prompts of later messages go on without it.  A
    message thinks once, and not at all where the text before the gen closes the thinking (as chat templates do to turn
    it off).

    Args:
        expr: Text and gens.
        model_type: How the model marks its thinking: deepseek-r1, qwen3, gpt-oss, ...; None for what its server says
            (`sgl serve --reasoning-parser`), or for a chat API for what it tells apart.
        max_thinking_tokens: Limit on the thinking; None for the `max_tokens` of the gen, which the answer has too.

    Raises:
        ArgumentError: a value is wrong, or there is no gen in `expr`.
    """
    marks = None
    if model_type is not None:
        if model_type not in REASONING_PARSERS:
            raise reject("model_type", model_type, "one of " + ", ".join(REASONING_PARSERS))
        marks = REASONING_PARSERS[model_type]
    check_sampling({"max_new_tokens": max_thinking_tokens}, shown_as={"max_new_tokens": "max_thinking_tokens"})
    nodes = () if expr is None else flatten(expr)
    if not any(isinstance(node, Gen) for node in nodes):
        raise reject("expr", expr, "an expression with a gen in it")
    thinking = Thinking(marks, max_thinking_tokens)
    return Concat(tuple(replace(node, thinking=thinking) if isinstance(node, Gen) else node for node in nodes))


def image(path_or_data: Any) -> Media:
    """An image, read here and sent with the prompt; the text has a placeholder for it.

    Any number may stand at any place of a message.  A model of text alone refuses it where it is appended.

    Args:
        path_or_data: The path of a file; an http, https or data address; bytes; or an image of package pillow.

    Raises:
        ArgumentError: it is no image, or cannot be read.
    """
    return image_media(path_or_data)


def video(path: Any, num_frames: int) -> Media:
    """A video as some of its frames, at equal distances, which are sent as images.

    Decoding waits; an async program with long videos calls this in a thread.

    Args:
        path: The file; decoded by package `av`.
        num_frames: How many frames; all where it has fewer.

    Raises:
        ArgumentError: a value is wrong, or the file is no video.
        SglError: package `av` is not installed.
    """
    return video_media(path, num_frames)


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


def _plain_options(function: str, options: dict[str, Any]) -> dict[str, Any]:
    for name in (
        "type",
        "dtype",
        "choices",
        "choices_method",
        "regex",
        "json_schema",
        "ebnf",
        "structural_tag",
        "tools",
    ):
        if name in options:
            raise TypeError(f"{function} has no option {name!r}: the type is its constraint")
    return options
