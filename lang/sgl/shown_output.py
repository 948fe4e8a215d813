"""ShownOutput: puts the output of one request into a state's text and into its variables, as it grows."""

from dataclasses import replace

from sgl.backends.base import Generation
from sgl.errors import SglError
from sgl.ir import Gen
from sgl.reasoning import REASONING_PARSERS, split_reply
from sgl.transcript import Transcript
from sgl.variable import Variable

# How the state's text shows thinking that a vendor reports beside the answer.
REPORTED_MARKS = REASONING_PARSERS["qwen3"]


class ShownOutput:
    """The output of one request.  Every call is made under the run's lock.

    Args:
        node: Whose output it is.
        transcript: Gets the text, from here on.
        variable: Gets the output.
        start: Where the variable's text begins; here if None.
        thinking: Gets thinking that comes in the same reply; None where there is none or it came before.
    """

    def __init__(
        self, node: Gen, transcript: Transcript, variable: Variable, *, start: int | None, thinking: Variable | None
    ) -> None:
        self._given_marks = node.thinking.marks if node.thinking is not None else None
        self._transcript = transcript
        self._variable = variable
        self._thinking = thinking
        self._here = len(transcript.text)
        self._begin = self._here if start is None else start

    def show(self, generation: Generation) -> None:
        """Take the output so far."""
        if self._thinking is None:
            self._put(generation.text)
            self._variable.grow(self._transcript.text[self._begin :], generation.meta)
            return
        thinking, answer = self._parts(generation)
        marks = self._given_marks or REPORTED_MARKS
        self._put(marks.framed(thinking, answer) if thinking else answer)
        self._thinking.grow(thinking, {})
        self._variable.grow(answer, generation.meta)

    def finished(self, generation: Generation) -> Generation:
        """The whole output without its thinking, which gets its variable."""
        if self._thinking is None:
            return generation
        thinking, answer = self._parts(generation)
        self._thinking.finish(thinking, {})
        if thinking:
            end = len(self._transcript.text) - len(answer)
            self._transcript.note_thinking(self._here, end)
        return replace(generation, text=answer)

    def _parts(self, generation: Generation) -> tuple[str, str]:
        if generation.reasoning or self._given_marks is None:
            return generation.reasoning, generation.text
        return split_reply(generation.text, self._given_marks)

    def _put(self, text: str) -> None:
        before = self._transcript.text
        if not text.startswith(before[self._here :]):
            raise SglError(f"the backend took back streamed text: {before[self._here :]!r} became {text!r}")
        self._transcript.text = before[: self._here] + text
