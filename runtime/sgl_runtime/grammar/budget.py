"""Budget: how large an automaton may grow and how long one compilation may take.

Every loop of a compilation that can grow spends from it, so that a compilation really stops.
"""

import time
from threading import Event

from sgl_runtime.errors import GrammarError

_UNITS_BETWEEN_CLOCKS = 256


class BudgetError(GrammarError):
    """The grammar is well formed and supported, but its automaton is too large or takes too long."""


class Budget:
    """Limits of one compilation.

    Args:
        max_states: Most states of any automaton, final or in between.
        timeout_s: Seconds from now after which the next `spend` refuses.
        stop: Ends the work early once it is set; None for work that nobody stops.
        full_states: Most states that a second try may have, where this is a first one with less; `max_states` by
            default.  What is made depends on it, never on what the first try may have.
    """

    def __init__(
        self, *, max_states: int, timeout_s: float, stop: Event | None = None, full_states: int | None = None
    ) -> None:
        self.max_states = max_states
        self.full_states = max_states if full_states is None else full_states
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._stop = stop
        self._until_clock = _UNITS_BETWEEN_CLOCKS

    def spend(self, units: int = 1) -> None:
        """Note work done; now and then look at the clock.

        Raises:
            BudgetError: the time is over, or the work is to stop.
        """
        self._until_clock -= units
        if self._until_clock > 0:
            return
        self._until_clock = _UNITS_BETWEEN_CLOCKS
        if self._stop is not None and self._stop.is_set():
            raise BudgetError("compiling the grammar was stopped because the runtime ends")
        if time.monotonic() > self._deadline:
            raise BudgetError(f"compiling the grammar took longer than {self._timeout_s:g} seconds")

    def check_states(self, num_states: int) -> None:
        """Refuse an automaton that is too large.

        Raises:
            BudgetError: `num_states` is over the limit.
        """
        if num_states > self.max_states:
            raise BudgetError(
                f"the grammar needs {num_states} or more automaton states; at most {self.max_states} are allowed"
                " (max_grammar_states): use smaller counts in repeats, lengths or numbers of items"
            )
