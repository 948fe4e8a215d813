"""ChatCall: a chat request as every chat API gives it to the core.

How an API (OpenAI chat, Responses, Anthropic messages) is built on the core, a thin translation both ways:

1. Its body becomes a `ChatCall`.  Fields that all requests of the runtime share keep their native names: `sampling` is
   the `sampling_params` object and `options` holds other fields of `/generate` (docs/protocol.md); they are checked by
   the same code, so errors name them natively, and the API puts its own names in (`openai_names.py` does so).
2. `ChatService.prepare(call)` checks everything, renders and tokenizes the prompt, and gives a `PreparedChat`
   (which knows `num_prompt_tokens`), or raises what becomes the error reply.  Nothing runs before.
3. `ChatService.stream(prepared)` gives `ChatStep`s: for each choice, by `index`, its events in order (`ReasoningDelta`,
   `ContentDelta`, `CallBegin`, `CallArguments`), the tokens behind them with their log probabilities, and with the last
   one a `ChatFinish`.  `usage` counts all choices so far.
4. `ChatService.reply(prepared)` gives the whole reply, a `ChatReply` with a `ChatChoice` for each choice: the very same
   steps, put together by `ChoiceFold`.  So whole and streamed replies cannot differ.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

ChoiceMode = Literal["none", "auto", "required"]


@dataclass(frozen=True, kw_only=True)
class FunctionTool:
    """A function that the model may call.

    Attributes:
        name: Its name.
        definition: What the chat template is shown: `{"name", "description", "parameters"}` and whatever else there is.
        parameters: JSON Schema of its arguments; an empty object takes none.
        strict: Whether arguments must match the schema also where the model is free to call.
    """

    name: str
    definition: dict[str, Any]
    parameters: dict[str, Any]
    strict: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolChoice:
    """What the model shall do with the tools.

    Attributes:
        mode: none: it calls nothing and is shown no tools; auto: it decides; required: it calls at least one.
        names: The functions that it may call; None for all.
        is_one_call: Whether it makes at most one call.
    """

    mode: ChoiceMode = "auto"
    names: tuple[str, ...] | None = None
    is_one_call: bool = False


@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """How the messages become a prompt.

    Attributes:
        add_generation_prompt: Whether the assistant's turn is opened at the end.
        continue_final_message: Whether the output goes on with the last message instead.
        documents: Documents for templates that take some; None for none.
        variables: Further variables of the template.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    documents: list[Any] | None = None
    variables: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReasoningOptions:
    """How thinking is shown.

    Attributes:
        separate: Whether it is told apart from the answer.
        stream: Whether a stream shows it as it grows, and not at once when it is over.
        budget: Most tokens of the thinking, after which it is ended for the model; None for no limit of its own.
    """

    separate: bool = True
    stream: bool = True
    budget: int | None = None


@dataclass(frozen=True, kw_only=True)
class ChatCall:
    """A chat request.

    Attributes:
        messages: Checked messages in OpenAI's form: `role`, `content` as text, and what else templates know
            (`tool_calls`, `tool_call_id`, `name`, `reasoning_content`).
        tools: Functions that may be called.
        tool_choice: What the model shall do with them.
        template: How the messages become a prompt.
        reasoning: How thinking is shown.
        sampling: The native `sampling_params`, unchecked; a constraint in it holds for the answer, not the thinking.
        options: Other fields of `/generate` but the prompt and `stream`, unchecked.
        stream: Whether steps are wanted as they come.
        must_fit: Whether a limit past what the context has room for is an error, and not lowered.
        tools_field: The body's field that tools came from, for errors.
    """

    messages: list[dict[str, Any]]
    tools: tuple[FunctionTool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template: TemplateOptions = TemplateOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    sampling: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    stream: bool = False
    must_fit: bool = True
    tools_field: str = "tools"
