"""FragmentCache: automata of strings and numbers, compiled once and used by many schemas."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from sgl_runtime.grammar.char_dfa import CharDfa

_MAX_BYTES = 64 * 2**20


class FragmentCache:
    """A bounded memory of automata by what they stand for; used by all compiling threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._fragments: OrderedDict[Hashable, CharDfa] = OrderedDict()
        self._num_bytes = 0

    def get(self, key: Hashable, make: Callable[[], CharDfa]) -> CharDfa:
        """The automaton of a key, made if it is not there."""
        with self._lock:
            known = self._fragments.get(key)
            if known is not None:
                self._fragments.move_to_end(key)
                return known
        # Made outside of the lock: two threads may make the same one, which costs time but no correctness.
        made = make()
        with self._lock:
            if key not in self._fragments:
                self._fragments[key] = made
                self._num_bytes += made.table.nbytes
            while self._num_bytes > _MAX_BYTES and len(self._fragments) > 1:
                _, oldest = self._fragments.popitem(last=False)
                self._num_bytes -= oldest.table.nbytes
        return made
