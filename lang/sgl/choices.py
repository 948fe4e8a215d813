"""How `select` picks: four methods that turn token log probabilities into a decision.

Given the log probabilities of each choice's tokens, a method returns the index of its pick and a score for every
choice.  Every token counts, one of log probability 0.0 as well; ties go to the earliest choice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sgl.errors import ArgumentError, reject

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


class ExactSequenceProbability:
    """The highest probability of the exact sequence of tokens: what the model would most likely write.

    Not biased towards any length; where one choice is the beginning of another, they share out the probability.
    Scores are log probabilities.
    """

    needs_unconditional = False

    def __call__(self, choices: Sequence[ScoredChoice]) -> ChoiceDecision:
        """See `ChoicesMethod`."""
        scores = choice_logprobs(choices)
        return ChoiceDecision(index=_first_maximum(scores), scores=scores)


token_length_normalized = TokenLengthNormalized()
greedy_token_selection = GreedyTokenSelection()
exact_sequence_probability = ExactSequenceProbability()
unconditional_likelihood_normalized = UnconditionalLikelihoodNormalized()


def check_choices_method(method: Any) -> ChoicesMethod:
    """A method of a user.

    Raises:
        ArgumentError: it is none.
    """
    if not callable(method):
        raise reject("choices_method", method, "a choices method such as sgl.greedy_token_selection")
    checked: ChoicesMethod = method
    return checked


def choice_logprobs(choices: Sequence[ScoredChoice]) -> list[float]:
    """Log probability that the model goes on with each choice, and with no longer one that begins with its tokens.

    So the choices exclude each other: where one is the beginning of another, what the model gives to the longer one
    does not count for the shorter one as well.
    """
    ids = [tuple(token[1] for token in choice.tokens) for choice in choices]
    totals = [math.fsum(choice.logprobs) for choice in choices]
    places = {tokens: index for index, tokens in enumerate(ids)}
    parents = [_longest_beginning(places, tokens) for tokens in ids]
    shares = [0.0] * len(ids)
    for index, parent in enumerate(parents):
        if parent is not None:
            shares[parent] += math.exp(totals[index] - totals[parent]) if totals[parent] > -math.inf else 0.0
    return [
        total + math.log1p(-share) if share < 1.0 else -math.inf for total, share in zip(totals, shares, strict=True)
    ]


def _longest_beginning(places: dict[tuple[int, ...], int], tokens: tuple[int, ...]) -> int | None:
    """Which of the token sequences is the longest true beginning of this one."""
    sizes = range(len(tokens) - 1, 0, -1)
    return next((places[tokens[:size]] for size in sizes if tokens[:size] in places), None)


def choice_probabilities(choices: Sequence[ScoredChoice]) -> list[float]:
    """The model's probability of each choice (see `choice_logprobs`), made to sum to 1 over the choices."""
    totals = choice_logprobs(choices)
    highest = max(totals)
    if highest == -math.inf:
        return [1.0 / len(totals)] * len(totals)
    weights = [math.exp(total - highest) for total in totals]
    whole = sum(weights)
    return [weight / whole for weight in weights]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What came of a select.

    Attributes:
        text: The pick.
        index: Its place among the choices.
        choices: All of them, in the order given.
        scores: One number for each, by the method that picked.
        probabilities: The model's probability of each, made to sum to 1 over the choices; whatever the method.
        logprobs: Log probability of all tokens of each choice.
    """

    text: str
    index: int
    choices: tuple[str, ...]
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    logprobs: tuple[float, ...]

    @property
    def probability(self) -> float:
        """The probability of the pick."""
        return self.probabilities[self.index]

    def by_text(self) -> dict[str, float]:
        """The probability of each choice by its text."""
        return dict(zip(self.choices, self.probabilities, strict=True))

    @classmethod
    def of(cls, name: str, text: Any, meta: dict[str, Any]) -> "Choice":
        """The record of a select's variable.

        Raises:
            ArgumentError: the variable did not come from a select.
        """
        if "probabilities" not in meta:
            raise ArgumentError(f"variable {name!r} is not the result of a select")
        return cls(
            text=text,
            index=meta["choices"].index(text),
            choices=tuple(meta["choices"]),
            scores=tuple(meta["scores"]),
            probabilities=tuple(meta["probabilities"]),
            logprobs=tuple(math.fsum(token[0] for token in tokens) for tokens in meta["input_token_logprobs"]),
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _first_maximum(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)
