"""How `select` picks: three methods that turn token log probabilities into a decision.

Given the log probabilities of each choice's tokens, a method returns the index of its pick and a score for every
choice.  Every token counts, one of log probability 0.0 as well; ties go to the earliest choice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

TokenLogprob = tuple[float, int, str | None]
"""Log probability, token id, text of the token where it is known."""


@dataclass(frozen=True, kw_only=True)
class ScoredChoice:
    """One choice with what the model thinks of it.

    Attributes:
        text: The choice.
        tokens: Its tokens from where the tokens of any of the choices first differ from those of the prompt.
        unconditional: Log probabilities of the same tokens without the prompt, the first taken as 0.0; None where the
            method does not ask for them.
    """

    text: str
    tokens: tuple[TokenLogprob, ...]
    unconditional: tuple[float, ...] | None = None

    @property
    def logprobs(self) -> list[float]:
        """The log probabilities alone."""
        return [token[0] for token in self.tokens]


@dataclass(frozen=True, kw_only=True)
class ChoiceDecision:
    """What a method decided.

    Attributes:
        index: The pick.
        scores: One number for each choice, in the order given.
        details: What else the method wants to show in the meta info.
    """

    index: int
    scores: list[float]
    details: dict[str, Any] = field(default_factory=dict)


class ChoicesMethod(Protocol):
    """A way to pick a choice; pass your own object to `select(choices_method=...)`."""

    @property
    def needs_unconditional(self) -> bool:
        """Whether the choices must be scored without the prompt too (one more request)."""

    def __call__(self, choices: Sequence[ScoredChoice]) -> ChoiceDecision:
        """Pick one of the choices, which all have at least one token."""


class TokenLengthNormalized:
    """The highest mean log probability per token.

    Prefers long choices whose endings are easy to predict.
    """

    needs_unconditional = False

    def __call__(self, choices: Sequence[ScoredChoice]) -> ChoiceDecision:
        """See `ChoicesMethod`."""
        scores = [_mean(choice.logprobs) for choice in choices]
        return ChoiceDecision(index=_first_maximum(scores), scores=scores)


class GreedyTokenSelection:
    """Token by token, keep the choices whose token is the most likely one.

    A choice that has no more tokens goes on with its own mean.  Scores are the means.
    """

    needs_unconditional = False

    def __call__(self, choices: Sequence[ScoredChoice]) -> ChoiceDecision:
        """See `ChoicesMethod`."""
        scores = [_mean(choice.logprobs) for choice in choices]
        longest = max(len(choice.tokens) for choice in choices)
        matrix = [
            choice.logprobs + [mean] * (longest - len(choice.tokens))
            for choice, mean in zip(choices, scores, strict=True)
        ]
        left = list(range(len(choices)))
        for column in range(longest):
            best = max(matrix[index][column] for index in left)
            left = [index for index in left if matrix[index][column] == best]
        return ChoiceDecision(index=left[0], scores=scores, details={"greedy_logprob_matrix": matrix})


class UnconditionalLikelihoodNormalized:
    """The highest mean of log probability with the prompt minus log probability without it.

    Takes out how common a choice is by itself.  Source: arXiv:2005.14165 section 2.4.
    """

    needs_unconditional = True

    def __call__(self, choices: Sequence[ScoredChoice]) -> ChoiceDecision:
        """See `ChoicesMethod`."""
        scores = []
        for choice in choices:
            assert choice.unconditional is not None, "asked for by needs_unconditional"
            pairs = zip(choice.logprobs, choice.unconditional, strict=True)
            scores.append(_mean([with_prompt - alone for with_prompt, alone in pairs]))
        return ChoiceDecision(index=_first_maximum(scores), scores=scores)


token_length_normalized = TokenLengthNormalized()
greedy_token_selection = GreedyTokenSelection()
unconditional_likelihood_normalized = UnconditionalLikelihoodNormalized()


def choice_probabilities(choices: Sequence[ScoredChoice]) -> list[float]:
    """The model's probability of each choice's exact tokens, made to sum to 1 over the choices."""
    totals = [sum(choice.logprobs) for choice in choices]
    highest = max(totals)
    if highest == -math.inf:
        return [1.0 / len(totals)] * len(totals)
    weights = [math.exp(total - highest) for total in totals]
    whole = sum(weights)
    return [weight / whole for weight in weights]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _first_maximum(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)
