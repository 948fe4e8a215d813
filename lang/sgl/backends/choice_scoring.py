"""ChoiceScorer: log probabilities of choices behind a prompt, over the joint tokenization of both.

A choice may change how the end of the prompt is tokenized ("the" behind a space, a letter behind half a word).  So each
choice is scored as the ids of prompt and choice together, from the first position where the ids of any choice leave
those of the prompt alone (token healing).  That position is the same for all choices: their scores compare, and do not
depend on the order of the choices or on where the program split its text.

Choices that begin alike share the work: they are sent in the order of their ids, which walks the tree of their tokens,
and each asks for log probabilities from where it leaves the one before it; those of earlier tokens are the same.  The
server finds what was computed before in its prefix cache, so many choices cost about as many tokens as are distinct
among them, and one each.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

from sgl.backends.base import Prompt
from sgl.backends.payload import new_rid
from sgl.choices import ScoredChoice, TokenLogprob
from sgl.errors import BackendError

Ids = Sequence[int]


class ChoiceScorer:
    """Scores choices with zero-token requests of the native protocol.

    Args:
        generate: Sends a payload to `/generate`.
        tokenize: Sends a payload to `/tokenize`.
    """

    def __init__(
        self,
        *,
        generate: Callable[[dict[str, Any]], Awaitable[Any]],
        tokenize: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> None:
        self._generate = generate
        self._tokenize = tokenize

    async def score(
        self, prompt: Prompt, choices: Sequence[str], *, needs_unconditional: bool
    ) -> tuple[list[ScoredChoice], list[dict[str, Any]]]:
        """Score every choice.

        Args:
            prompt: Not empty.
            choices: At least one.
            needs_unconditional: Whether to score the choices' tokens without the prompt too.

        Returns:
            The scored choices in order, and the meta info of each one's request without log probabilities.
        """
        alone, *joint = await self._pending_ids(prompt, choices)
        # The very first token of a context has no log probability.
        first = max(1, len(prompt.ids) + min(common_length(alone, ids) for ids in joint))
        found, metas = await self._walk([[*prompt.ids, *ids] for ids in joint], first)
        tokens = [_tokens(entries, choice) for entries, choice in zip(found, choices, strict=True)]
        unconditional: list[tuple[float, ...] | None] = [None] * len(choices)
        if needs_unconditional:
            apart, _ = await self._walk([[token[1] for token in each] for each in tokens], 0)
            unconditional = [tuple(0.0 if entry[0] is None else float(entry[0]) for entry in each) for each in apart]
        scored = [
            ScoredChoice(text=choice, tokens=each, unconditional=without_prompt)
            for choice, each, without_prompt in zip(choices, tokens, unconditional, strict=True)
        ]
        return scored, metas

    async def _pending_ids(self, prompt: Prompt, choices: Sequence[str]) -> list[Ids]:
        """What follows the prompt's ids: its pending text alone, and with each choice."""
        texts = [prompt.pending, *(prompt.pending + choice for choice in choices)]
        reply = await self._tokenize({"text": texts, "add_special_tokens": not prompt.ids})
        ids: list[Ids] = reply["tokens"]
        return ids

    async def _walk(self, sequences: Sequence[Ids], first: int) -> tuple[list[list[Any]], list[dict[str, Any]]]:
        """Log probability triples of each sequence from position `first` on, and each one's meta info."""
        order = sorted(range(len(sequences)), key=lambda index: list(sequences[index][first:]))
        tails = [sequences[index][first:] for index in order]
        shared = [0, *(common_length(before, tail) for before, tail in pairwise(tails))]
        replies = await self._send(
            [list(sequences[index]) for index in order],
            [min(first + length, len(sequences[index])) for index, length in zip(order, shared, strict=True)],
        )
        found: list[list[Any]] = [[]] * len(order)
        metas: list[dict[str, Any]] = [{}] * len(order)
        entries: list[Any] = []
        for index, length, reply in zip(order, shared, replies, strict=True):
            meta = dict(reply["meta_info"])
            entries = [*entries[:length], *meta.pop("input_token_logprobs")]
            del meta["output_token_logprobs"]
            found[index], metas[index] = entries, meta
        return found, metas

    async def _send(self, sequences: list[list[int]], starts: list[int]) -> list[dict[str, Any]]:
        payload = {
            "input_ids": sequences,
            "rid": [new_rid() for _ in sequences],
            "sampling_params": {"max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": starts,
            "return_text_in_logprobs": True,
        }
        replies = await self._generate(payload)
        if not isinstance(replies, list) or len(replies) != len(sequences):
            raise BackendError(f"a batch of {len(sequences)} choices was answered by {str(replies)[:200]}")
        return replies


def common_length(left: Ids, right: Ids) -> int:
    """How many ids two sequences begin with in common."""
    return next(
        (place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


def _tokens(entries: Sequence[Any], choice: str) -> tuple[TokenLogprob, ...]:
    tokens = tuple((float(entry[0]), int(entry[1]), entry[2]) for entry in entries)
    if not tokens:
        raise BackendError(
            f"choice {choice!r} cannot be scored: together with the text before it, it is a single token at the "
            "beginning of the context, or no token at all"
        )
    return tokens
