"""Usage: how much a run asked of its backend."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Usage:
    """Sums over the calls of a run, or of several.

    Attributes:
        num_calls: Gens and selects.
        prompt_tokens, cached_tokens: Prompt tokens, and those of them that were in the prefix cache.
        completion_tokens: Generated tokens.
    """

    num_calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def reset(self) -> None:
        """Begin again at nothing."""
        self.num_calls = self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0

    def add_call(self, meta: Mapping[str, Any]) -> None:
        """Count a call by its meta info."""
        self.num_calls += 1
        self.prompt_tokens += meta.get("prompt_tokens", 0)
        self.cached_tokens += meta.get("cached_tokens", 0)
        self.completion_tokens += meta.get("completion_tokens", 0)

    def add(self, other: "Usage") -> None:
        """Count what another one counted."""
        self.num_calls += other.num_calls
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.completion_tokens += other.completion_tokens

    def summary(self, seconds: float) -> str:
        """Tokens per second and share of cached prompt tokens, for people."""
        rate = self.completion_tokens / seconds if seconds > 0 else 0.0
        share = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        return f"{rate:.0f} tok/s, {share:.0%} cached"
