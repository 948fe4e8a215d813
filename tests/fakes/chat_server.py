"""A scripted server for chats: a template that knows tools, and answers that a test writes."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from fakes.byte_tokenizer import EOS_ID, VOCABULARY, ByteTokenizer
from fakes.scripted_scheduler import ScriptedScheduler
from fakes.scripted_server import ScriptedServer
from sgl_runtime.ipc.messages import SchedulerOutput, TokenizedRequest

Answer = Callable[[TokenizedRequest], str]


def prompt_text(message: TokenizedRequest) -> str:
    """The prompt of a request, special tokens included."""
    return b"".join(VOCABULARY.token_bytes[token_id] for token_id in message.input_ids).decode(errors="replace")


class ChatScheduler(ScriptedScheduler):
    """Answers every request as `answer` says."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Answer = lambda message: "ok"

    def _begin(self, message: TokenizedRequest) -> list[SchedulerOutput]:
        outputs = super()._begin(message)
        if message.rid in self.running:
            answer = ByteTokenizer().encode(self.answer(message), add_bos=False)
            self.running[message.rid].script = [*answer, EOS_ID]
        return outputs

    @property
    def requests(self) -> list[TokenizedRequest]:
        return [message for message in self.accepted if isinstance(message, TokenizedRequest)]


class ChatTemplateFake:
    """Shows every message as a line of JSON, and remembers what it was asked to render."""

    def __init__(self, source: str, *, opening: str = "<turn>assistant\n") -> None:
        self.source = source
        self.opening = opening
        self.rendered: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []

    def render(self, messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool, **kwargs: Any) -> str:
        self.rendered.append((list(messages), {"add_generation_prompt": add_generation_prompt, **kwargs}))
        lines = [
            f"<turn>{message['role']}\n{message['content']}{json.dumps(message.get('tool_calls', ''))}<end>"
            for message in messages
        ]
        tools = json.dumps(kwargs["tools"]) if "tools" in kwargs else ""
        return tools + "".join(lines) + (self.opening if add_generation_prompt else "")

    def role_affixes(self, messages: Sequence[dict[str, Any]], role: str) -> tuple[str, str]:
        return f"<turn>{role}\n", "<end>"


class ChatServer(ScriptedServer):
    """Use as a context manager.

    Args:
        source: Text of the chat template.
        opening: What it opens the assistant's turn with.
        flags: Start-up options.
    """

    def __init__(self, source: str = "tools tool_calls", *, opening: str = "<turn>assistant\n", **flags: Any) -> None:
        super().__init__(**flags)
        self.scheduler = ChatScheduler()
        self.template = ChatTemplateFake(source, opening=opening)
        self.tokenizer.chat_template = self.template
        self.facts = {**self.facts, "context_length": 8000}

    def say(self, answer: str | Answer) -> None:
        """What every request from now on is answered with."""
        self.scheduler.answer = answer if callable(answer) else lambda message: answer
