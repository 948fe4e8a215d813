"""RunOptions: the keywords of `run`, `run_batch` and `options`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from sgl.backends.base import Backend
from sgl.chat_template import ChatTemplate, as_chat_template
from sgl.choices import ChoicesMethod, check_choices_method
from sgl.default_backend import as_backend
from sgl.errors import reject
from sgl.ir import Concat, Node, Role, RoleBegin, RoleEnd, Text
from sgl.media import image_media
from sgl.sampling import MAX_TOKENS_LIMIT, SAMPLING_FIELDS, SamplingParams, check_sampling

ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a program is run.

    Attributes:
        sampling: Settings for gens that do not say their own.
        backend: Takes the calls; the default backend if None.
        stream: Hand out the state at once, run the body beside the caller, and stream every gen.
        use_thread: False: appending waits until what was appended has run, and raises there.
        record: Keep what the run does in `state.recording`.
        start: What the state begins with.
        choices_method: How a select picks that does not say; None for what `global_config` says.
        chat_template: Stands in for the served model's own.
        num_api_spec_tokens: Fewest tokens that a speculative call asks for; None for no speculation.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    backend: Backend | None = None
    stream: bool = False
    use_thread: bool = True
    record: bool = False
    start: Concat = field(default_factory=lambda: Concat(()))
    choices_method: ChoicesMethod | None = None
    chat_template: ChatTemplate | None = None
    num_api_spec_tokens: int | None = None

    def updated(self, values: Mapping[str, Any]) -> "RunOptions":
        """These options with some replaced.

        Args:
            values: Names from `RUN_OPTIONS` to values; None leaves an option as it is.
        """
        given = {name: value for name, value in values.items() if value is not None}
        sampling = check_sampling({name: value for name, value in given.items() if name in SAMPLING_FIELDS})
        changes: dict[str, Any] = {"sampling": sampling.over(self.sampling)}
        if "backend" in given:
            changes["backend"] = as_backend(given["backend"])
        if "messages" in given:
            changes["start"] = _dialogue(given["messages"])
        if "chat_template" in given:
            changes["chat_template"] = as_chat_template(given["chat_template"])
        if "choices_method" in given:
            changes["choices_method"] = check_choices_method(given["choices_method"])
        if "num_api_spec_tokens" in given:
            changes["num_api_spec_tokens"] = _check_spec_tokens(given["num_api_spec_tokens"])
        for name in ("stream", "use_thread", "record"):
            if name in given:
                if not isinstance(given[name], bool):
                    raise reject(name, given[name], "True or False")
                changes[name] = given[name]
        return replace(self, **changes)


def _check_spec_tokens(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS_LIMIT:
        raise reject("num_api_spec_tokens", value, f"an integer from 1 to {MAX_TOKENS_LIMIT}")
    return value


def _dialogue(messages: Any) -> Concat:
    if not isinstance(messages, list | tuple):
        raise reject("messages", messages, "a list of messages, {'role': ..., 'content': ...} each")
    nodes: list[Node] = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
            raise reject(f"messages[{index}]", message, "a dict with 'role' and 'content'")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise reject(f"messages[{index}]['role']", role, "one of " + ", ".join(map(repr, ROLES)))
        nodes += [RoleBegin(role), *_content(f"messages[{index}]['content']", content), RoleEnd(role)]
    return Concat(tuple(nodes))


def _content(path: str, content: Any) -> list[Node]:
    """The nodes of a message's content: text, or a list of parts as `messages()` gives them."""
    if isinstance(content, str):
        return [Text(content)] if content else []
    if not isinstance(content, list | tuple):
        raise reject(path, content, "a string, or a list of parts")
    nodes: list[Node] = []
    for index, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(text)}:
                nodes += [Text(text)] if text else []
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                nodes.append(image_media(url))
            case _:
                shape = "{'type': 'text', 'text': ...} or {'type': 'image_url', 'image_url': {'url': ...}}"
                raise reject(f"{path}[{index}]", part, shape)
    return nodes


RUN_OPTIONS = (
    *SAMPLING_FIELDS,
    *("backend", "stream", "use_thread", "record", "messages"),
    *("choices_method", "chat_template", "num_api_spec_tokens"),
)
