"""ChoiceProgress: what one choice has become so far."""

from collections.abc import Sequence

from sgl_runtime.server.chat.chat_reply import ChatFinish
from sgl_runtime.server.chat.choice_runs import Piece
from sgl_runtime.server.chat.reply_parser import ReplyParser
from sgl_runtime.server.tool_parsers.events import CallBegin, ContentDelta, ReasoningDelta, ReplyEvent
from sgl_runtime.tokenizer.vocabulary import Vocabulary


class ChoiceProgress:
    """Turns pieces of a choice into events, and counts.

    Args:
        parser: Reads its text.
        separates: Whether thinking is told apart from the answer.
        streams_reasoning: Whether thinking is shown as it grows.

    Attributes:
        prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens: Counts so far; tokens of thinking that stands
            between tokens of an answer are counted when the choice has ended.
    """

    def __init__(self, parser: ReplyParser, *, separates: bool, streams_reasoning: bool) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self._parser = parser
        self._separates = separates
        self._streams_reasoning = streams_reasoning
        self._held_reasoning: list[str] = []
        self._has_calls = False
        self._ids: list[int] = []
        self._text: list[str] = []

    def take(self, piece: Piece) -> list[ReplyEvent]:
        """The events of the next piece."""
        self.prompt_tokens, self.cached_tokens = piece.prompt_tokens, piece.cached_tokens
        self.completion_tokens += len(piece.update.ids)
        if piece.is_thinking:
            self.reasoning_tokens += len(piece.update.ids)
        else:
            self._ids += piece.update.ids
            self._text.append(piece.text)
        events = self._parser.feed(piece.text)
        if piece.update.finish is not None:
            events += self._parser.finish()
        self._has_calls = self._has_calls or any(isinstance(event, CallBegin) for event in events)
        return self._shown(events, is_last=piece.update.finish is not None)

    def finish(self, piece: Piece) -> ChatFinish | None:
        """How the choice ended; None where the piece is not its last."""
        finish = piece.update.finish
        if finish is None:
            return None
        reason = "tool_calls" if finish.type == "stop" and self._has_calls else finish.type
        return ChatFinish(reason=reason, matched=finish.matched)

    def count_reasoning(self, vocabulary: Vocabulary, skipped_ids: frozenset[int]) -> None:
        """Count the tokens of the thinking, when the choice has ended.

        Args:
            vocabulary: Bytes of the tokens.
            skipped_ids: Tokens that are not in the text.
        """
        spans = self._parser.reasoning_spans()
        if not spans or self.reasoning_tokens:
            return
        text = "".join(self._text)
        byte_spans = [(len(text[:begin].encode()), len(text[:end].encode())) for begin, end in spans]
        self.reasoning_tokens = _num_inside(self._ids, byte_spans, vocabulary, skipped_ids)

    def _shown(self, events: list[ReplyEvent], *, is_last: bool) -> list[ReplyEvent]:
        if not self._separates:
            return [ContentDelta(event.text) if isinstance(event, ReasoningDelta) else event for event in events]
        if self._streams_reasoning:
            return events
        shown: list[ReplyEvent] = []
        for event in events:
            if isinstance(event, ReasoningDelta):
                self._held_reasoning.append(event.text)
                continue
            shown += self._release()
            shown.append(event)
        return [*shown, *self._release()] if is_last else shown

    def _release(self) -> list[ReplyEvent]:
        text = "".join(self._held_reasoning)
        self._held_reasoning.clear()
        return [ReasoningDelta(text)] if text else []


def _num_inside(
    ids: Sequence[int], spans: Sequence[tuple[int, int]], vocabulary: Vocabulary, skipped_ids: frozenset[int]
) -> int:
    """How many tokens begin inside of spans of bytes."""
    place, count = 0, 0
    for token_id in ids:
        is_shown = token_id < vocabulary.size and token_id not in skipped_ids
        size = len(vocabulary.token_bytes[token_id]) if is_shown else 0
        count += size > 0 and any(begin <= place < end for begin, end in spans)
        place += size
    return count
