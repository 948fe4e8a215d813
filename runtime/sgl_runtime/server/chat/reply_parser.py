"""ReplyParser: the text of one choice to events, first the thinking, then the calls."""

from collections.abc import Sequence
from functools import partial

from sgl_runtime.server.chat.thinking import Thinking, read_thinking
from sgl_runtime.server.chat.tool_plan import ToolPlan
from sgl_runtime.server.reasoning_parsers import ReasoningStyle
from sgl_runtime.server.tool_parsers.events import ContentDelta, ReplyEvent
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_parser import TextParser
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import ToolFormat


class ReplyParser:
    """Hands text from parser to parser: what is answer to one is what the next one reads.

    Args:
        stages: The parsers, in order; without any all text is answer.
    """

    def __init__(self, stages: Sequence[TextParser]) -> None:
        self._stages = stages

    def feed(self, text: str) -> list[ReplyEvent]:
        """The events that more text makes certain."""
        return self._run([ContentDelta(text)] if text else [], 0)

    def finish(self) -> list[ReplyEvent]:
        """The events that the end of the text makes certain."""
        events: list[ReplyEvent] = []
        for number, stage in enumerate(self._stages):
            events += self._run(stage.finish(), number + 1)
        return events

    def reasoning_spans(self) -> list[tuple[int, int]]:
        """Where the thinking stood in the text so far."""
        return self._stages[0].reasoning_spans if self._stages else []

    def _run(self, events: list[ReplyEvent], number: int) -> list[ReplyEvent]:
        for stage in self._stages[number:]:
            events = [
                seen
                for event in events
                for seen in (stage.feed(event.text) if isinstance(event, ContentDelta) else [event])
            ]
        return events


def reply_parser(
    plan: ToolPlan, *, style: ReasoningStyle | None, thinking: Thinking, channels: ToolFormat | None
) -> ReplyParser:
    """The parser of one choice.

    Args:
        plan: The calls that it may make.
        style: How its thinking is told apart; None where it is not.
        thinking: How the thinking stands where the text begins.
        channels: The format of a model that marks thinking, calls and answer alike; it then takes the place of `style`.
    """
    stages: list[TextParser] = []
    format_read = plan.format
    if channels is not None:
        schemas = plan.schemas if format_read is channels else {}
        stages.append(_calls(channels, ToolPlan(format=channels, schemas=schemas, max_calls=plan.max_calls)))
        format_read = None if format_read is channels else format_read
    elif style is not None:
        read = partial(read_thinking, marks=style.marks, thinking=thinking, begins_inside=style.begins_inside)
        stages.append(TextParser(read, ReplyWriter()))
    if format_read is not None:
        stages.append(_calls(format_read, plan))
    return ReplyParser(stages)


def _calls(form: ToolFormat, plan: ToolPlan) -> TextParser:
    def read(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
        return form.read(reader, writer, plan.schemas)

    return TextParser(read, ReplyWriter(plan.schemas, max_calls=plan.max_calls, holds=not plan.is_enforced))
