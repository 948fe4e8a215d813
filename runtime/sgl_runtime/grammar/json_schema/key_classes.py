"""KeyClasses: which property names the rules of an object tell apart, and the automata that read them."""

from collections.abc import Iterable, Sequence

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.formula import Formulas
from sgl_runtime.grammar.json_schema.object_rules import NO_NAME, KeyClass, ObjectRules
from sgl_runtime.grammar.json_schema.overlay import EMPTY
from sgl_runtime.grammar.json_schema.questions import Truths
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.strings import StringAtom, StringShape, StringValues


class KeyClasses:
    """The keys of one object.

    Without patterns the classes are the names and one for all others.  With patterns, and with rules about names, they
    are read off an automaton that knows all of them.

    Args:
        rules: The object's.
        formulas: Where formulas are kept.
        scalars: Automata of strings.
        budget: Limits the automata.

    Attributes:
        names: The names.
        texts: The spelling of each behind its opening quote, with the closing one; None where it has none.
        has_patterns: Whether keys other than the names are told apart.
        all_keys: All keys, where they are told apart; nothing where they are not.
        label_of: The label of each class in `all_keys`.
    """

    def __init__(self, rules: ObjectRules, formulas: Formulas, scalars: Scalars, budget: Budget) -> None:
        self.names = rules.names
        self._scalars = scalars
        self._budget = budget
        self.has_patterns = bool(rules.patterns or rules.key_atoms)
        payloads = [formulas.payload(atom) for atom in rules.key_atoms]
        self._atoms: tuple[StringAtom, ...] = (
            *(StringShape(pattern=pattern) for pattern in rules.patterns),
            *(payload for payload in payloads if isinstance(payload, StringShape | StringValues)),
        )
        self.texts = tuple(map(scalars.key_text, rules.names))
        self._of_name: dict[int, list[KeyClass]] = {
            index: [KeyClass(index)] for index, text in enumerate(self.texts) if text is not None
        }
        self._others = [KeyClass(NO_NAME)]
        self.all_keys = EMPTY
        self.label_of: dict[KeyClass, int] = {}
        if self.has_patterns:
            self._find_classes()

    def following(self, names: Iterable[int]) -> list[KeyClass]:
        """The classes of some names, and those of all keys that are no name."""
        found = [key for index in names for key in self._of_name.get(index, ())]
        return found + self._others

    def of_name(self, index: int) -> Sequence[KeyClass]:
        """The classes of a name; none where it has no spelling."""
        return self._of_name.get(index, ())

    @property
    def others(self) -> Sequence[KeyClass]:
        """The classes of all keys that are no name."""
        return self._others

    def fragment(self, wanted: Sequence[KeyClass]) -> ByteFragment:
        """The keys of some classes, labelled by their place in `wanted`; for objects with patterns."""
        labels = {(key.name, key.truths): label for label, key in enumerate(wanted)}
        return self._scalars.keys(
            self.names, self._atoms, lambda name, truths: labels.get((name, truths), -1), self._budget
        )

    def _find_classes(self) -> None:
        found: dict[tuple[int, Truths], int] = {}

        def label_of(name: int, truths: Truths) -> int:
            return found.setdefault((name, truths), len(found))

        self.all_keys = self._scalars.keys(self.names, self._atoms, label_of, self._budget)
        present = set(self.all_keys.labels.tolist())
        keys = [KeyClass(name, truths) for (name, truths), label in found.items() if label in present]
        self.label_of = {key: found[key.name, key.truths] for key in keys}
        self._of_name = {}
        self._others = []
        for key in keys:
            if key.name == NO_NAME:
                self._others.append(key)
            else:
                self._of_name.setdefault(key.name, []).append(key)
