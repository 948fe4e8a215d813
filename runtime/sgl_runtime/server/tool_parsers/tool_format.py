"""ToolFormat: what a server knows of one format of tool calls."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader

Schemas = Mapping[str, Any]
"""The functions that may be called, each with the JSON Schema of its parameters."""


@dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """A format.

    Attributes:
        read: Reads a whole reply: all its text, and the calls in it.
        marks: Texts that open a call.  Where one is a special token of the vocabulary, special tokens are shown to it.
        begin, end: Around the arguments of a call, for grammars that enforce them; `begin` has `{name}` in it.  Empty
            where the arguments are not written as JSON.
        trigger: How `begin` begins in every call.
        template_signs: Texts of which a chat template holds at least one if its model writes this format.
        stops: Texts that end the reply when the model writes them.
        has_channels: Whether the format marks thinking and answer too, so that no other parser runs before it.
    """

    read: Callable[[TextReader, ReplyWriter, Schemas], Steps[None]]
    marks: tuple[str, ...] = ()
    begin: str = ""
    end: str = ""
    trigger: str = ""
    template_signs: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    has_channels: bool = False

    def opening(self, name: str) -> str:
        """What stands in front of the arguments of a call of this function."""
        return self.begin.replace("{name}", json.dumps(name)).replace("{bare_name}", name)
