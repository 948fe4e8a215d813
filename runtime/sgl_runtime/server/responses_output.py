"""Output items of /v1/responses, each with the events that tell of it as it grows."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

Event = dict[str, Any]
ItemKind = Literal["message", "reasoning", "function_call"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputItem(Protocol):
    """An item that grows."""

    @property
    def kind(self) -> ItemKind:
        """What it is."""

    @property
    def text(self) -> str:
        """Its text, or its arguments, so far."""

    def begin(self) -> list[Event]:
        """The events that open it."""

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> list[Event]:
        """Append text; the events for it.

        Args:
            text: The text.
            logprobs: Log probabilities of the tokens behind it, where items of this kind show some.
        """

    def end(self, status: ItemStatus) -> list[Event]:
        """The events that close it."""

    def item(self, status: ItemStatus) -> dict[str, Any]:
        """The item so far."""


@dataclass(frozen=True, kw_only=True)
class TextShape:
    """How an item that holds one part of text is written.

    Attributes:
        kind: Type of the item.
        fields: Other fields of it.
        part_list: Its field with the parts.
        part_index: The field of events that tells which of them is meant.
        part_type: Type of the part.
        part_event, text_event: Beginnings of the names of events.
        has_logprobs: Whether the part has log probabilities, and citations.
    """

    kind: ItemKind
    fields: Mapping[str, Any]
    part_list: str
    part_index: str
    part_type: str
    part_event: str
    text_event: str
    has_logprobs: bool = False


MESSAGE = TextShape(
    kind="message",
    fields=MappingProxyType({"role": "assistant"}),
    part_list="content",
    part_index="content_index",
    part_type="output_text",
    part_event="response.content_part",
    text_event="response.output_text",
    has_logprobs=True,
)
"""What the model answers."""

REASONING = TextShape(
    kind="reasoning",
    fields=MappingProxyType({"summary": ()}),
    part_list="content",
    part_index="content_index",
    part_type="reasoning_text",
    part_event="response.content_part",
    text_event="response.reasoning_text",
)
"""What the model thinks."""

SUMMARY = TextShape(
    kind="reasoning",
    fields=MappingProxyType({}),
    part_list="summary",
    part_index="summary_index",
    part_type="summary_text",
    part_event="response.reasoning_summary_part",
    text_event="response.reasoning_summary_text",
)
"""What the model thinks, in the place of a summary."""


class TextOutput:
    """An item with text.

    Args:
        item_id: Its id.
        shape: How it is written.
    """

    def __init__(self, item_id: str, shape: TextShape) -> None:
        self._id = item_id
        self._shape = shape
        self._place = {"item_id": item_id, shape.part_index: 0}
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    @property
    def kind(self) -> ItemKind:
        """What it is."""
        return self._shape.kind

    @property
    def text(self) -> str:
        """Its text so far."""
        return "".join(self._texts)

    def begin(self) -> list[Event]:
        """The events that open it."""
        item = {**self.item("in_progress"), self._shape.part_list: []}
        return [
            {"type": "response.output_item.added", "item": item},
            {"type": f"{self._shape.part_event}.added", **self._place, "part": self._part()},
        ]

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> list[Event]:
        """Append text; the events for it."""
        self._texts.append(text)
        self._logprobs += logprobs
        shown = {"logprobs": logprobs} if self._shape.has_logprobs else {}
        return [{"type": f"{self._shape.text_event}.delta", **self._place, "delta": text, **shown}]

    def end(self, status: ItemStatus) -> list[Event]:
        """The events that close it."""
        part = self._part()
        shown = {"logprobs": part["logprobs"]} if self._shape.has_logprobs else {}
        return [
            {"type": f"{self._shape.text_event}.done", **self._place, "text": part["text"], **shown},
            {"type": f"{self._shape.part_event}.done", **self._place, "part": part},
            {"type": "response.output_item.done", "item": self.item(status)},
        ]

    def item(self, status: ItemStatus) -> dict[str, Any]:
        """The item so far."""
        head = {"id": self._id, "type": self._shape.kind, "status": status}
        return {**head, **self._shape.fields, self._shape.part_list: [self._part()]}

    def _part(self) -> dict[str, Any]:
        more = {"annotations": [], "logprobs": list(self._logprobs)} if self._shape.has_logprobs else {}
        return {"type": self._shape.part_type, "text": self.text, **more}


class CallOutput:
    """A function that the model calls.

    Args:
        item_id: Its id.
        call_id: The id of the call.
        name: The function.
    """

    kind: ItemKind = "function_call"

    def __init__(self, item_id: str, *, call_id: str, name: str) -> None:
        self._id = item_id
        self._call = {"call_id": call_id, "name": name}
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """Its arguments so far."""
        return "".join(self._texts)

    def begin(self) -> list[Event]:
        """The events that open it."""
        return [{"type": "response.output_item.added", "item": self.item("in_progress")}]

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> list[Event]:
        """Append arguments; the events for them."""
        self._texts.append(text)
        return [{"type": "response.function_call_arguments.delta", "item_id": self._id, "delta": text}]

    def end(self, status: ItemStatus) -> list[Event]:
        """The events that close it."""
        item = self.item(status)
        done = {"item_id": self._id, "name": item["name"], "arguments": item["arguments"]}
        return [
            {"type": "response.function_call_arguments.done", **done},
            {"type": "response.output_item.done", "item": item},
        ]

    def item(self, status: ItemStatus) -> dict[str, Any]:
        """The item so far."""
        head = {"id": self._id, "type": self.kind, "status": status}
        return {**head, **self._call, "arguments": self.text}
