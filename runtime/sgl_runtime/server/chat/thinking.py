"""Where a reply thinks: what its prompt says of it, and the thinking in its text."""

from enum import Enum, auto

from sgl_runtime.model_info import ReasoningMarks
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader


class Thinking(Enum):
    """How the thinking stands where the output begins."""

    OVER = auto()
    OPEN = auto()
    MAY_BEGIN = auto()


def thinking_behind(prompt: str, marks: ReasoningMarks, *, continued: str | None = None) -> Thinking:
    """How the thinking stands behind a prompt.

    Args:
        prompt: Text of the prompt.
        marks: How the model marks its thinking.
        continued: The message that the output goes on with; None where it begins one of its own.
    """
    opening, closing = marks.opening.strip(), marks.closing.strip()
    if continued:
        begins, ends = continued.rfind(opening), continued.rfind(closing)
        return Thinking.OPEN if begins > ends else Thinking.OVER
    end = prompt.rstrip()
    if end.endswith(opening):
        return Thinking.OPEN
    return Thinking.OVER if end.endswith(closing) else Thinking.MAY_BEGIN


def read_thinking(
    reader: TextReader, writer: ReplyWriter, *, marks: ReasoningMarks, thinking: Thinking, begins_inside: bool
) -> Steps[None]:
    """Read a reply whose thinking stands between two marks.

    Args:
        reader: Its text.
        writer: Gets thinking and answer.
        marks: The marks.
        thinking: How the thinking stands where the text begins.
        begins_inside: Whether the model thinks from its first token on, though no mark opens it.
    """
    if thinking is not Thinking.OVER:
        begin = reader.position
        reader.record()
        yield from reader.space()
        # A model may write the mark though its prompt has it.
        is_marked = yield from reader.begins(marks.opening.strip())
        if is_marked or begins_inside or thinking is Thinking.OPEN:
            yield from reader.until((marks.closing.strip(),), writer.reasoning)
            writer.end_reasoning(begin, reader.position)
        else:
            writer.text(reader.recorded())
    yield from reader.rest(writer.text)
