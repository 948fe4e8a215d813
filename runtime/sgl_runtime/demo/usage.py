"""Usage: what a program cost, from the engine's own counters."""

from dataclasses import dataclass
from typing import Any, Self

from rich.table import Table

_COUNTERS = {
    "prompt_tokens": "prompt_tokens_total",
    "cached_tokens": "cached_tokens_total",
    "generated_tokens": "generation_tokens_total",
    "constraint_s": "grammar_mask_seconds_total",
}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Counters between two moments.

    Attributes:
        elapsed_s: Time between them.
        prompt_tokens: Prompt tokens of the requests.
        cached_tokens: Of these, found in the prefix cache.
        generated_tokens: Generated tokens.
        constraint_s: Time spent on finding which tokens a constraint allows.
    """

    elapsed_s: float
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    constraint_s: float

    @classmethod
    def between(cls, before: dict[str, Any], after: dict[str, Any], *, elapsed_s: float) -> Self:
        """The difference of two readings of the counters.

        Args:
            before, after: `internal_states[0]` of two replies of `/get_server_info`.
            elapsed_s: Time between them.
        """
        return cls(elapsed_s=elapsed_s, **{name: after[key] - before[key] for name, key in _COUNTERS.items()})

    @property
    def cells(self) -> list[str]:
        """The row of a table."""
        rate = f"{self.generated_tokens / self.elapsed_s:.0f}" if self.generated_tokens else "-"
        constraint = f"{self.constraint_s:.2f} s ({_share(self.constraint_s, self.elapsed_s)})"
        return [
            f"{self.elapsed_s:.1f} s",
            f"{self.prompt_tokens:,}",
            f"{self.cached_tokens:,} ({_share(self.cached_tokens, self.prompt_tokens)})",
            f"{self.generated_tokens:,}",
            rate,
            constraint if self.constraint_s else "-",
        ]


def usage_table(rows: dict[str, Usage], total: Usage) -> Table:
    """What each program cost, and all of them together."""
    table = Table(
        title="What it cost",
        show_footer=True,
        caption="generated: tokens.  constraints: time spent on which tokens are allowed.",
    )
    names = ("time", "prompt tokens", "found in cache", "generated", "tokens/s", "constraints")
    table.add_column("program", footer="all three", no_wrap=True)
    for name, footer in zip(names, total.cells, strict=True):
        table.add_column(name, footer=footer, justify="right")
    for title, usage in rows.items():
        table.add_row(title, *usage.cells)
    return table


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"
