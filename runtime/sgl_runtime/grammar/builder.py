"""AutomatonBuilder: states, edges and compiled fragments put together into one ByteAutomaton by offset copies."""

from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import (
    DEAD,
    FIRST_SPECIAL,
    ByteAutomaton,
    CountingStates,
    SharedPart,
    TwinStates,
)
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.table_parts import (
    CountingRun,
    MergeRun,
    SpecialRun,
    all_specials,
    byte_classes,
    write_copies,
    write_counting,
    write_merges,
)

_NUM_BYTES = 256
_STATES_BETWEEN_CHECKS = 64


class _Texts:
    """Chains of consecutive states that spell texts; their edges are made together."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._firsts: list[int] = []
        self._targets: list[int] = []

    def add(self, text: bytes, first: int, target: int) -> None:
        """Spell a text, from as many states as it has bytes to a target."""
        self._texts.append(text)
        self._firsts.append(first)
        self._targets.append(target)

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Places in the table by bytes, and entries."""
        lengths = np.array([len(text) for text in self._texts], dtype=np.int64)
        data = np.frombuffer(b"".join(self._texts), dtype=np.uint8)
        ends = np.cumsum(lengths)
        states = np.arange(len(data)) + np.repeat(np.array(self._firsts, dtype=np.int64) - ends + lengths, lengths)
        entries = (states + 1).astype(np.int32)
        entries[ends - 1] = self._targets
        return states * _NUM_BYTES + data, entries


class _Returns:
    """The states to return to, slice by slice."""

    def __init__(self) -> None:
        self.num_states = 0
        self._arrays: list[NDArray[np.int32]] = []
        # Those that came behind all of the arrays.
        self._single: list[int] = []

    def add(self, states: tuple[int, ...]) -> int:
        """Add a slice; returns where it begins."""
        place = self.num_states
        self.num_states += len(states)
        self._single += states
        return place

    def add_array(self, states: NDArray[np.int32]) -> int:
        """Add slices one behind the other; returns where they begin."""
        place = self.num_states
        self.num_states += len(states)
        self._arrays += [np.array(self._single, dtype=np.int32), states]
        self._single.clear()
        return place

    def all(self) -> NDArray[np.int32]:
        """All slices."""
        return np.concatenate([*self._arrays, np.array(self._single, dtype=np.int32)])


class AutomatonBuilder:
    """Collects the parts of an automaton; state 0, the start, is there from the beginning.

    Args:
        budget: Limits the number of states.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.num_states = 1
        self._checked_at = 0
        # Edges one by one: place in the flat table, and entry.
        self._places: list[int] = []
        self._entries: list[int] = []
        self._specials: dict[tuple[int, int], int] = {}
        self._num_specials = 0
        self._special_runs: list[SpecialRun] = []
        self._edge_runs: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
        self._texts = _Texts()
        self._counting_runs: list[CountingRun] = []
        self._returns = _Returns()
        self._return_slices: dict[tuple[int, ...], int] = {}
        self._copies: list[tuple[int, ByteFragment]] = []
        # Level, state and source of each.
        self._merges: list[int] = []
        # What `merge_all` was given.
        self._merge_runs: list[MergeRun] = []
        self._accepting: list[int] = []
        self._parts: list[SharedPart] = []
        self._counting: list[CountingStates] = []
        self._twins: list[TwinStates] = []
        self._distinct: set[int] = set()

    def new_state(self) -> int:
        """A state without edges."""
        first = self.num_states
        if first >= self._checked_at:
            return self.new_states(1)
        self.num_states = first + 1
        return first

    def new_states(self, count: int) -> int:
        """Several states without edges; returns the first."""
        first = self.num_states
        self.num_states += count
        if self.num_states > self._checked_at:
            self._budget.spend(_STATES_BETWEEN_CHECKS)
            self._budget.check_states(self.num_states)
            self._checked_at = self.num_states + _STATES_BETWEEN_CHECKS
        return first

    def add_edge(self, state: int, byte: int, target: int) -> None:
        """A plain edge."""
        self._places.append(state * _NUM_BYTES + byte)
        self._entries.append(target)

    def add_push(self, state: int, byte: int, callee: int, returns: tuple[int, ...]) -> None:
        """An edge into a callee; its label picks where to go on (DEAD: the label may not come)."""
        place = self._return_slices.get(returns)
        if place is None:
            place = self._return_slices[returns] = self._returns.add(returns)
        self._places.append(state * _NUM_BYTES + byte)
        self._entries.append(self._special(callee, place))

    def add_pop(self, state: int, byte: int, label: int) -> None:
        """An edge out of a callee."""
        self._places.append(state * _NUM_BYTES + byte)
        self._entries.append(self._special(-1, label))

    def add_pops(self, states: NDArray[np.int64], data: NDArray[np.int64], label: int) -> None:
        """Edges out of a callee, from each state on each byte, alike for bytes that no fragment tells apart."""
        entries = np.full(len(states), self._special(-1, label), dtype=np.int32)
        self._edge_runs.append((states * _NUM_BYTES + data, entries))

    def add_edges(self, states: NDArray[np.int64], data: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Plain edges, alike for bytes that no fragment tells apart."""
        self._edge_runs.append((states * _NUM_BYTES + data, targets))

    def add_pushes(
        self, states: NDArray[np.int64], data: NDArray[np.int64], callees: NDArray[np.int64], returns: NDArray[np.int32]
    ) -> None:
        """Edges into callees, alike for bytes that no fragment tells apart.

        Args:
            states: (S,) the states that they leave.
            data: (B,) the bytes, the same for each state.
            callees: (B,) the state that each byte leads to.
            returns: (S, L) where to go on from each state by label, DEAD where a label may not come.
        """
        if not len(data):
            return
        places = self._returns.add_array(returns.ravel()) + np.arange(len(states)) * returns.shape[1]
        kinds, kind = np.unique(callees, return_inverse=True)
        arguments = np.repeat(places, len(kinds)).astype(np.int32)
        self._special_runs.append((self._num_specials, np.tile(kinds, len(states)).astype(np.int32), arguments))
        numbers = self._num_specials + np.arange(len(states))[:, None] * len(kinds) + kind.reshape(1, -1)
        self._num_specials += len(states) * len(kinds)
        self._edge_runs.append(
            ((states[:, None] * _NUM_BYTES + data).ravel(), (FIRST_SPECIAL - numbers).ravel().astype(np.int32))
        )

    def add_counting(self, first: int, count: int, fragment: ByteFragment, callees: NDArray[np.int32]) -> None:
        """Edges with which consecutive states count characters.

        Args:
            first: The first state.
            count: How many states there are before the last one, which gets no edges.
            fragment: Spells characters: bytes that lead back to its start are whole ones.
            callees: (256,) int32, the state that reads on behind the first byte of a longer character; DEAD for none.
        """
        kinds = np.unique(callees[callees >= 0])
        place = self._returns.add_array(np.arange(first + 1, first + count + 1, dtype=np.int32))
        arguments = (place + np.repeat(np.arange(count), len(kinds))).astype(np.int32)
        self._special_runs.append((self._num_specials, np.tile(kinds, count).astype(np.int32), arguments))
        self._counting_runs.append(CountingRun(first, count, fragment, callees, self._num_specials))
        self._num_specials += count * len(kinds)

    def add_text_to(self, state: int, text: bytes, target: int) -> None:
        """A chain that spells a text, which is not empty, and ends in a state that is there."""
        self.add_edge(state, text[0], self.text_before(text[1:], target) if len(text) > 1 else target)

    def text_before(self, text: bytes, target: int, first: int | None = None) -> int:
        """Consecutive states, one before each byte of a text, which is not empty; returns the first.

        Args:
            text: The bytes.
            target: The state behind the last one.
            first: The first of the states, where these are there; new ones by default.
        """
        if first is None:
            first = self.new_states(len(text))
        self._texts.add(text, first, target)
        return first

    def embed(self, fragment: ByteFragment, key: object | None = None) -> int:
        """A copy of a fragment; returns its start.  Its labels are the caller's to connect.

        Args:
            fragment: What is copied.
            key: Names the part where it is the same in every automaton.
        """
        first = self.new_states(fragment.num_states)
        self._copies.append((first, fragment))
        if key is not None:
            self._parts.append(SharedPart(key, first, fragment.num_states))
        return first

    def merge(self, state: int, source: int, *, level: int = 0) -> None:
        """Give a state the edges of another one, where it has none of its own; and whether the output may end there.

        Args:
            state: Gets the edges.
            source: Has them.
            level: Merges of a level come after all of lower ones: a source that is merged into needs a lower level.
        """
        self._merges += (level, state, source)

    def merge_all(self, first: int, offsets: NDArray[np.int64], source: int) -> None:
        """Give several states the edges of another one, as `merge` does at level 0.

        Args:
            first: The state from which `offsets` count.
            offsets: (N,) where the states are.
            source: Has the edges.
        """
        self._merge_runs.append((first, offsets, source))

    def note(self, states: CountingStates | TwinStates) -> None:
        """Say that states count characters, or are twins of others."""
        if isinstance(states, CountingStates):
            self._counting.append(states)
        else:
            self._twins.append(states)

    def note_distinct(self, state: int) -> None:
        """Say that a callee's first state begins an array whose items must differ."""
        self._distinct.add(state)

    def accept(self, state: int) -> None:
        """The output may end at a state."""
        self._accepting.append(state)

    def build(self) -> ByteAutomaton:
        """The automaton."""
        single = np.array(self._places, dtype=np.int64), np.array(self._entries, dtype=np.int32)
        texts = self._texts.edges()
        fragments = [*(fragment for _, fragment in self._copies), *(run.fragment for run in self._counting_runs)]
        classes, kept_bytes = byte_classes(fragments, np.append(single[0], texts[0]) % _NUM_BYTES)
        width = len(kept_bytes)
        table = np.empty((self.num_states, width), dtype=np.int32)
        behind = 0
        for run in sorted(self._counting_runs, key=attrgetter("first")):
            # Their rows are written whole.
            table[behind : run.first] = DEAD
            behind = run.first + run.count
        table[behind:] = DEAD
        write_copies(table, kept_bytes, self._copies)
        write_counting(table, kept_bytes, self._counting_runs)
        flat = table.reshape(-1)
        for places, entries in (single, texts, *self._edge_runs):
            if len(places):
                states, data = np.divmod(places, _NUM_BYTES)
                flat[states * width + classes[data]] = entries
        accepting = np.zeros(self.num_states, dtype=bool)
        accepting[self._accepting] = True
        write_merges(table, accepting, self._merges, self._merge_runs)
        specials = all_specials(self._num_specials, self._specials, self._special_runs)
        return ByteAutomaton(
            byte_classes=classes.astype(np.uint8),
            table=table,
            accepting=accepting,
            edge_target=np.ascontiguousarray(specials[:, 0]),
            edge_argument=np.ascontiguousarray(specials[:, 1]),
            returns=self._returns.all(),
            parts=tuple(self._parts),
            counting=tuple(self._counting),
            twins=tuple(self._twins),
            distinct=frozenset(self._distinct),
        )

    def _special(self, target: int, argument: int) -> int:
        number = self._specials.get((target, argument))
        if number is None:
            number = self._specials[target, argument] = self._num_specials
            self._num_specials += 1
        return FIRST_SPECIAL - number
