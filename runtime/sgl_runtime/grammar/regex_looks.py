"""Determinisation of automata with conditions on the text before or after a place.

A condition becomes an automaton of its own.  Look-behind automata read the text from its beginning, and a guarded
edge may be taken where the automaton accepts just then (or does not, if negated).  A look-ahead automaton is started
where its edge is taken, and has to accept (or must never accept) on the rest of the text: the thread that took the
edge carries it along as an obligation.  A deterministic state is thus the states of all look-behind automata and a
set of threads, each an NFA state with its obligations.  This is the alternating automaton of the regex, made
deterministic (Chandra, Kozen and Stockmeyer, "Alternation", 1981).
"""

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum

import numpy as np

from sgl_runtime.grammar.alphabet import Alphabet
from sgl_runtime.grammar.char_dfa import CharDfa, smallest
from sgl_runtime.grammar.char_set import ANY_CHAR
from sgl_runtime.grammar.nfa import Nfa

_Obligations = frozenset[tuple[int, int]]
_Thread = tuple[int, _Obligations]
_State = tuple[tuple[int, ...], frozenset[_Thread]]
_NONE: _Obligations = frozenset()


class LookKind(Enum):
    """Where a condition looks."""

    AHEAD = "look-ahead"
    BEHIND = "look-behind"


@dataclass(frozen=True, eq=False)
class Guard:
    """An edge that takes no character and may be followed only where its condition holds.

    Attributes:
        source, target: States of the NFA.
        kind: Where the condition looks.
        negated: Whether the condition must not hold.
        dfa: Texts up to here (behind), or from here on (ahead), on which the condition holds.
    """

    source: int
    target: int
    kind: LookKind
    negated: bool
    dfa: CharDfa


def guarded_dfa(nfa: Nfa, guards: list[Guard], start: int, accept: int) -> CharDfa:
    """The smallest automaton of the strings that lead from `start` to `accept` with all conditions met.

    Raises:
        GrammarError: the budget does not suffice.
    """
    return _Determinizer(nfa, guards, accept).run(start)


class _Determinizer:
    def __init__(self, nfa: Nfa, guards: list[Guard], accept: int) -> None:
        edges = nfa.edges()
        self._budget = nfa.budget
        self._accept = accept
        self._guards = guards
        self._epsilon = edges.epsilon
        self._guards_from: dict[int, list[int]] = defaultdict(list)
        for number, guard in enumerate(guards):
            self._guards_from[guard.source].append(number)
        self._behind = [number for number, guard in enumerate(guards) if guard.kind is LookKind.BEHIND]
        # Look-behind has to follow every character, so that each must have a class.
        alphabet, _ = Alphabet.from_sets([ANY_CHAR])
        tables: list[list[list[int]]] = []
        maps = [np.zeros(1, dtype=np.int32)]
        for part in [edges.alphabet, *(guard.dfa.alphabet for guard in guards)]:
            alphabet, old, new = Alphabet.joint(alphabet, part)
            maps = [np.append(each, np.int32(-1))[old] for each in maps]
            maps.append(new)
        for guard, symbols in zip(guards, maps[2:], strict=True):
            padded = np.concatenate([guard.dfa.table, np.full((guard.dfa.num_states, 1), -1, dtype=np.int32)], axis=1)
            # The last row is the dead state, found by index -1.
            tables.append([*padded[:, symbols].tolist(), [-1] * alphabet.num_classes])
        # The state of each that accepts whatever follows: automata are smallest, so that it leads to itself alone.
        self._for_good = [
            {state for state in np.flatnonzero(guard.dfa.accepting).tolist() if set(table[state]) == {state}}
            for guard, table in zip(guards, tables, strict=True)
        ]
        self._alphabet = alphabet
        self._look_tables = tables
        self._symbol_of_class: list[int] = maps[1].tolist()
        self._targets: dict[tuple[int, int], list[int]] = defaultdict(list)
        for source, symbol, target in zip(
            edges.source.tolist(), edges.symbol.tolist(), edges.target.tolist(), strict=True
        ):
            self._targets[source, symbol].append(target)

    def run(self, start: int) -> CharDfa:
        """Explore all deterministic states."""
        behind = tuple(0 for _ in self._behind)
        first: _State = (behind, self._closure(behind, {(start, _NONE)}))
        numbers = {first: 0}
        states = [first]
        rows: list[list[int]] = []
        while len(rows) < len(states):
            row = []
            for number in range(self._alphabet.num_classes):
                target = self._step(states[len(rows)], number)
                if not target[1]:
                    row.append(-1)
                    continue
                if target not in numbers:
                    numbers[target] = len(states)
                    states.append(target)
                    self._budget.check_states(len(states))
                row.append(numbers[target])
            rows.append(row)
        table = np.array(rows, dtype=np.int32).reshape(len(rows), self._alphabet.num_classes)
        accepting = np.array([self._is_accepting(state) for state in states])
        return smallest(self._alphabet, table, accepting, 0, self._budget)

    def _step(self, state: _State, number: int) -> _State:
        behind, threads = state
        self._budget.spend(1 + len(threads))
        symbol = self._symbol_of_class[number]
        moved: set[_Thread] = set()
        for nfa_state, obligations in threads:
            targets = self._targets.get((nfa_state, symbol))
            if not targets:
                continue
            remaining = self._advance(obligations, number)
            if remaining is not None:
                moved.update((target, remaining) for target in targets)
        behind = tuple(
            self._look_tables[guard][state_there][number]
            for guard, state_there in zip(self._behind, behind, strict=True)
        )
        return behind, self._closure(behind, moved)

    def _advance(self, obligations: _Obligations, number: int) -> _Obligations | None:
        """What is left of the obligations after a character; None if one of them is broken."""
        remaining = []
        for guard, state in obligations:
            outcome = self._oblige(guard, self._look_tables[guard][state][number])
            if outcome is False:
                return None
            if outcome is not True:
                remaining.append(outcome)
        return frozenset(remaining)

    def _oblige(self, guard: int, state: int) -> tuple[int, int] | bool:
        """The obligation at this state of its automaton, or whether it is met for good (True) or broken (False).

        The automaton of a look-ahead ends in "any text", but with a `$` inside it accepts where the text ends and no
        further: only where it accepts whatever follows is nothing left to be seen.
        """
        negated = self._guards[guard].negated
        if state < 0:
            return negated
        return not negated if state in self._for_good[guard] else (guard, state)

    def _closure(self, behind: tuple[int, ...], threads: set[_Thread]) -> frozenset[_Thread]:
        """Follow edges that take no character, guarded ones where their condition may hold."""
        behind_state = dict(zip(self._behind, behind, strict=True))
        found = set(threads)
        pending = list(threads)
        while pending:
            self._budget.spend()
            state, obligations = pending.pop()
            reached = [(target, obligations) for target in self._epsilon.get(state, ())]
            for number in self._guards_from.get(state, ()):
                after = self._pass(number, behind_state, obligations)
                if after is not None:
                    reached.append((self._guards[number].target, after))
            for thread in reached:
                if thread not in found:
                    found.add(thread)
                    pending.append(thread)
        return self._without_weaker(found)

    def _pass(self, number: int, behind_state: dict[int, int], obligations: _Obligations) -> _Obligations | None:
        """The obligations of a thread behind a guard, None if the guard stops it."""
        guard = self._guards[number]
        if guard.kind is LookKind.BEHIND:
            state = behind_state[number]
            holds = state >= 0 and bool(guard.dfa.accepting[state])
            return obligations if holds != guard.negated else None
        outcome = -1 if guard.dfa.is_empty else 0
        obligation = self._oblige(number, outcome)
        if isinstance(obligation, bool):
            return obligations if obligation else None
        return obligations | {obligation}

    @staticmethod
    def _without_weaker(threads: set[_Thread]) -> frozenset[_Thread]:
        """Drop a thread where another in the same NFA state has a part of its obligations."""
        by_state: dict[int, list[_Obligations]] = defaultdict(list)
        for state, obligations in sorted(threads, key=lambda thread: len(thread[1])):
            if not any(other <= obligations for other in by_state[state]):
                by_state[state].append(obligations)
        return frozenset((state, each) for state, kept in by_state.items() for each in kept)

    def _is_accepting(self, state: _State) -> bool:
        """Whether some thread is at the end, and all of its obligations are met if the text ends here."""
        return any(
            nfa_state == self._accept
            and all(bool(self._guards[guard].dfa.accepting[at]) != self._guards[guard].negated for guard, at in obliged)
            for nfa_state, obliged in state[1]
        )
