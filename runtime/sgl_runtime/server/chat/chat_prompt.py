"""The prompt of a chat call: its messages as the served model's template wants them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.chat.chat_call import TemplateOptions
from sgl_runtime.server.chat.tool_plan import ToolPlan
from sgl_runtime.server.prompt_tokenizer import PromptTemplate

Message = dict[str, Any]

_MARK = "SGLMESSAGEEND"
# Templates that refuse call ids of another length than 9 say so in this way.
_SHORT_IDS = re.compile(r"\|\s*length\s*[!=]=\s*9\b")
_SHORT_ID_SIZE = 9
_RESERVED = frozenset(
    {
        "self",
        "conversation",
        "messages",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "sanitize_control_tokens",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    }
)
"""What a template is given, and how it is rendered: no variables of a request."""


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered prompt.

    Attributes:
        text: Its text.
        continued: The message that the output goes on with; None where it begins one of its own.
    """

    text: str
    continued: str | None


def render_chat(
    template: PromptTemplate,
    messages: Sequence[Message],
    options: TemplateOptions,
    plan: ToolPlan,
) -> ChatPrompt:
    """The prompt of a conversation.

    Args:
        template: Of the served model.
        messages: Checked messages.
        options: How they are rendered.
        plan: Has the tools that the model is shown.

    Raises:
        InvalidRequestError: the template refuses the messages, or the last one cannot be gone on with.
    """
    for name in options.variables:
        if name in _RESERVED:
            path = f"chat_template_kwargs.{name}"
            raise InvalidRequestError(f"{path} is no variable of the chat template", param=path)
    ready = [_template_message(message, template.source) for message in messages]
    variables: dict[str, Any] = dict(options.variables)
    if plan.definitions and "tools" in template.source:
        variables["tools"] = list(plan.definitions)
    elif plan.definitions:
        ready = _with_tools_in_text(ready, plan)
    if options.documents is not None:
        variables["documents"] = options.documents
    if not options.continue_final_message:
        text = _render(template, ready, add_generation_prompt=options.add_generation_prompt, **variables)
        return ChatPrompt(text, None)
    content = ready[-1]["content"]
    if ready[-1]["role"] != "assistant" or not content:
        raise InvalidRequestError(
            "continue_final_message is true; the last message must then be one of the assistant with content",
            param="continue_final_message",
        )
    # The mark keeps templates from taking away the white space in front of it.
    marked = [*ready[:-1], {**ready[-1], "content": content + _MARK}]
    text, mark, _ = _render(template, marked, add_generation_prompt=False, **variables).rpartition(_MARK)
    if not mark or _MARK in text:
        raise InvalidRequestError(
            "the chat template does not show the last message once, so that it cannot be gone on with",
            param="continue_final_message",
        )
    return ChatPrompt(text, content)


def _render(template: PromptTemplate, messages: list[Message], **options: Any) -> str:
    if not any(message.get("tool_calls") for message in messages):
        return template.render(messages, **options)
    try:
        return template.render([_with_arguments(message, as_text=False) for message in messages], **options)
    except InvalidRequestError as first:
        # Some templates put the arguments into the prompt as text.
        try:
            return template.render([_with_arguments(message, as_text=True) for message in messages], **options)
        except InvalidRequestError:
            raise first from None


def _template_message(message: Message, source: str) -> Message:
    role = "system" if message["role"] == "developer" and "developer" not in source else message["role"]
    ready = {**message, "role": role}
    if ready.get("tool_calls") and "tool_calls" not in source:
        return _with_calls_in_text(ready)
    if not _SHORT_IDS.search(source):
        return ready
    if ready.get("tool_calls"):
        ready["tool_calls"] = [{**call, "id": _short(call["id"])} for call in ready["tool_calls"]]
    if "tool_call_id" in ready:
        ready["tool_call_id"] = _short(ready["tool_call_id"])
    return ready


def _short(call_id: str) -> str:
    letters = "".join(char for char in call_id if char.isascii() and char.isalnum())
    return letters[-_SHORT_ID_SIZE:].rjust(_SHORT_ID_SIZE, "0")


def _with_arguments(message: Message, *, as_text: bool) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_call_with_arguments(call, as_text=as_text) for call in calls]}


def _call_with_arguments(call: dict[str, Any], *, as_text: bool) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    if isinstance(arguments, str) and not as_text:
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return call
    elif not isinstance(arguments, str) and as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _with_calls_in_text(message: Message) -> Message:
    """Calls told in the message's text, for templates that know of none."""
    calls = [
        {"name": call["function"]["name"], **_call_with_arguments(call, as_text=False)["function"]}
        for call in message["tool_calls"]
    ]
    text = "\n".join([message["content"], *(json.dumps(call, ensure_ascii=False) for call in calls)]).lstrip("\n")
    return {**{name: value for name, value in message.items() if name != "tool_calls"}, "content": text}


def _with_tools_in_text(messages: list[Message], plan: ToolPlan) -> list[Message]:
    """The tools told in the system message, for templates that know of none."""
    functions = "\n".join(json.dumps(each["function"], ensure_ascii=False) for each in plan.definitions)
    text = f"You can call these functions, each given with the JSON Schema of its parameters:\n{functions}"
    if plan.example:
        text += f"\nA call is written like this:\n{plan.example}"
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
