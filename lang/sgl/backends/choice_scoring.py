"""ChoiceScorer: log probabilities of choices behind a prompt, over the joint tokenization of both.

A choice may change how the end of the prompt is tokenized ("the" behind a space, a letter behind half a word).  So each
choice is scored as the ids of prompt and choice together, from the first position where the ids of any choice leave
those of the prompt alone (token healing).  That position is the same for all choices: their scores compare, and do not
depend on the order of the choices or on where the program split its text.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sgl.backends.base import Prompt
from sgl.backends.payload import new_rid
from sgl.choices import ScoredChoice, TokenLogprob
from sgl.errors import BackendError

# How many tokens of the prompt's end a choice may change before a second request is needed.
HEALING_WINDOW = 4


class ChoiceScorer:
    """Scores choices with zero-token requests of the native protocol.

    Args:
        generate: Sends a payload to `/generate`.
    """

    def __init__(self, generate: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        self._generate = generate

    async def score(
        self, prompt: Prompt, choices: Sequence[str], *, needs_unconditional: bool
    ) -> tuple[list[ScoredChoice], list[dict[str, Any]]]:
        """Score every choice.

        Args:
            prompt: Not empty; `pending_ids` is set where there is pending text.
            choices: At least one.
            needs_unconditional: Whether to score the choices' tokens without the prompt too.

        Returns:
            The scored choices in order, and the meta info of each one's request without log probabilities.
        """
        first, replies = await self._joint_replies(prompt, choices)
        scored = [
            ScoredChoice(text=choice, tokens=_tokens_from(reply, first, choice))
            for choice, reply in zip(choices, replies, strict=True)
        ]
        if needs_unconditional:
            scored = await self._with_unconditional(scored)
        metas = [
            {name: value for name, value in reply["meta_info"].items() if not name.endswith("_token_logprobs")}
            for reply in replies
        ]
        return scored, metas

    async def _joint_replies(self, prompt: Prompt, choices: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
        """The replies, and the position from which tokens count."""
        alone = prompt.pending_ids or ()
        start = len(prompt.ids) + max(0, len(alone) - HEALING_WINDOW)
        while True:
            batch: dict[str, Any] = {"text": [prompt.pending + choice for choice in choices], "return_text_ids": True}
            if prompt.ids:
                batch["input_ids"] = [list(prompt.ids) for _ in choices]
            replies = await self._send(batch, len(choices), start)
            shared = min(_common_length(alone, reply["text_ids"]) for reply in replies)
            first = len(prompt.ids) + shared
            if first >= start:
                return first, replies
            start = first

    async def _with_unconditional(self, scored: list[ScoredChoice]) -> list[ScoredChoice]:
        ids = [[token[1] for token in choice.tokens] for choice in scored]
        replies = await self._send({"input_ids": ids}, len(ids), 0)
        result = []
        for choice, reply in zip(scored, replies, strict=True):
            entries = reply["meta_info"]["input_token_logprobs"]
            logprobs = tuple(0.0 if entry[0] is None else float(entry[0]) for entry in entries)
            result.append(ScoredChoice(text=choice.text, tokens=choice.tokens, unconditional=logprobs))
        return result

    async def _send(self, fields: dict[str, Any], num_choices: int, start: int) -> list[dict[str, Any]]:
        payload = {
            **fields,
            "rid": [new_rid() for _ in range(num_choices)],
            "sampling_params": {"max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": start,
            "return_text_in_logprobs": True,
        }
        replies = await self._generate(payload)
        if not isinstance(replies, list) or len(replies) != num_choices:
            raise BackendError(f"a batch of {num_choices} choices was answered by {str(replies)[:200]}")
        return replies


def _tokens_from(reply: dict[str, Any], first: int, choice: str) -> tuple[TokenLogprob, ...]:
    """The tokens of a reply from prompt position `first` on."""
    meta = reply["meta_info"]
    num_tokens = meta["prompt_tokens"] - first
    entries = meta["input_token_logprobs"][-num_tokens:] if num_tokens > 0 else []
    # The very first token of a context has no log probability.
    tokens = tuple((float(entry[0]), int(entry[1]), entry[2]) for entry in entries if entry[0] is not None)
    if not tokens:
        raise BackendError(
            f"choice {choice!r} cannot be scored: together with the text before it, it is a single token at the "
            "beginning of the context"
        )
    return tokens


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
