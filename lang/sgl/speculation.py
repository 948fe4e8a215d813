"""Speculation: the text that a model wrote beyond what a gen asked for, which later nodes of the state use up.

For vendors that bill by the call (`@function(num_api_spec_tokens=...)`): one call asks for more than its gen wants and
without its stops.  The constants and gens that follow take from that text as long as it says what they say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sgl.backends.base import Generation
from sgl.ir import Gen, Node, Text, ToolGen
from sgl.sampling import RUN_DEFAULTS, SamplingParams
from sgl.stops import cut_at_stop

# Settings that may differ between the call and a gen that is served by it: they only say where an output ends.
_ENDS = ("max_new_tokens", "stop", "seed", "return_logprob")
# Settings with which a whole reply can be asked for at once.
_CARRIED = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Taken:
    """What a gen took.

    Attributes:
        text: Its output.
        finish_reason: Why it ended.
        num_tokens: How many tokens that is.
        tokens: `[log probability, no id, text]` of each, where they are known.
    """

    text: str
    finish_reason: dict[str, Any]
    num_tokens: int
    tokens: Sequence[list[Any]]


@dataclass(frozen=True)
class Continuation:
    """Text that the model wrote and nobody has used.

    Attributes:
        text: The text.
        is_whole: Whether the model had nothing more to say.
        settings: What was asked with.
        tokens_per_char: For counts, where the tokens themselves are not known.
        tokens: The tokens of the text where they are known; the first may be used in part.
    """

    text: str
    is_whole: bool
    settings: SamplingParams
    tokens_per_char: float
    tokens: tuple[list[Any], ...] = ()

    @classmethod
    def of(cls, generation: Generation, settings: SamplingParams) -> "Continuation":
        """The text of a reply."""
        tokens = tuple(generation.meta.get("output_token_logprobs", ()))
        if "".join(token[2] for token in tokens) != generation.text:
            tokens = ()
        count = generation.meta.get("completion_tokens", 0)
        return cls(
            text=generation.text,
            is_whole=generation.meta["finish_reason"]["type"] == "stop",
            settings=settings,
            tokens_per_char=count / max(1, len(generation.text)),
            tokens=tokens,
        )

    def behind(self, num_chars: int) -> "Continuation":
        """What is left when so much was used."""
        tokens = self.tokens[self.num_whole_tokens(num_chars) :]
        return replace(self, text=self.text[num_chars:], tokens=tokens)

    def num_whole_tokens(self, num_chars: int) -> int:
        """How many of the known tokens end within the first characters."""
        # The first token may begin before the text: sizes are counted from the end.
        left = sum(len(token[2]) for token in self.tokens) - (len(self.text) - num_chars)
        for index, token in enumerate(self.tokens):
            left -= len(token[2])
            if left < 0:
                return index
        return len(self.tokens)

    def num_tokens(self, num_chars: int) -> int:
        """How many tokens the first characters take, those used in part included; an estimate where none are known."""
        if num_chars == 0:
            return 0
        if not self.tokens:
            return round(self.tokens_per_char * num_chars)
        whole = self.num_whole_tokens(num_chars)
        used = sum(len(token[2]) for token in self.tokens[whole:])
        return whole if used == len(self.text) - num_chars else whole + 1

    def cut_at(self, num_tokens: int) -> int | None:
        """Characters of the first tokens; None where there are fewer, or they are not known."""
        if len(self.tokens) < num_tokens:
            return None
        return len(self.text) - sum(len(token[2]) for token in self.tokens[num_tokens:])

    def take(self, settings: SamplingParams) -> Taken | None:
        """The output of a gen with these settings, as far as this text has it; None where it does not say."""
        if _carried(settings) != _carried(self.settings):
            return None
        limit = settings.max_new_tokens
        assert limit is not None, "settings are complete"
        text, matched = cut_at_stop(self.text, settings.stop or ())
        reason: dict[str, Any] = {"type": "stop", "matched": matched}
        if (matched is None and not self.is_whole) or self.num_tokens(len(text)) > limit:
            end = self.cut_at(limit)
            if end is None:
                return None
            text, reason = self.text[:end], {"type": "length", "length": limit}
        count = self.num_tokens(len(text))
        return Taken(text, reason, count, self.tokens[:count])


class Speculation:
    """What one state has left of the model's words.  It belongs to the state: nothing is shared between states.

    Args:
        num_tokens: Fewest tokens that a call asks for.
    """

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self._left: Continuation | None = None

    def discard(self) -> None:
        """What comes now is not what the model went on with."""
        self._left = None

    def put(self, continuation: Continuation) -> None:
        """Take what the model wrote."""
        self._left = continuation

    def use_text(self, text: str) -> None:
        """Constant text was appended: go on behind it if the model wrote the same."""
        if self._left is not None:
            self._left = self._left.behind(len(text)) if self._left.text.startswith(text) else None

    def take(self, settings: SamplingParams) -> Taken | None:
        """The output of a gen, if what is left has it; the rest stays for the nodes behind it."""
        if self._left is None:
            return None
        taken = self._left.take(settings)
        self._left = self._left.behind(len(taken.text)) if taken is not None else None
        return taken


def can_speculate(node: Gen, settings: SamplingParams) -> bool:
    """Whether a gen's output can be cut out of a longer text: nothing but its end may depend on its settings."""
    if node.constraint is not None or node.thinking is not None or isinstance(node, ToolGen):
        return False
    neutral = RUN_DEFAULTS.given()
    return all(
        name in _ENDS or name in _CARRIED or value == neutral.get(name) for name, value in settings.given().items()
    )


def settings_of_call(settings: SamplingParams, num_tokens: int, *, wants_tokens: bool) -> SamplingParams:
    """The settings of a call that is to say more than one gen asks for."""
    assert settings.max_new_tokens is not None, "settings are complete"
    longest = max(num_tokens, settings.max_new_tokens)
    return replace(settings, max_new_tokens=longest, stop=(), return_logprob=wants_tokens)


def matches(continuation: Continuation, nodes: Sequence[tuple[Node, SamplingParams]]) -> bool:
    """Whether a text says what these nodes say, up to the first that it cannot serve."""
    left = continuation
    for node, settings in nodes:
        if isinstance(node, Text):
            if not left.text.startswith(node.value):
                return False
            left = left.behind(len(node.value))
        elif isinstance(node, Gen) and can_speculate(node, settings):
            taken = left.take(settings)
            if taken is None:
                return False
            left = left.behind(len(taken.text))
        else:
            return True
    return True


def _carried(settings: SamplingParams) -> dict[str, Any]:
    return {name: value for name, value in settings.given().items() if name in _CARRIED}
