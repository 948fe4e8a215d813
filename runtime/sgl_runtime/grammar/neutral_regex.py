r"""A parsed regex written in the few forms that every dialect reads alike.

Literals, classes of code points, groups, alternations and counts; what shorthands, case and flags mean is settled by
our own reading.  Used for the engines that take over where an automaton is too large.
"""

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.char_set import CharSet
from sgl_runtime.grammar.regex_tree import Alternation, Chars, Concat, Node, Repeat

_NOTHING = r"[a&&b]"


def neutral_regex(node: Node) -> str:
    """A regex for whole matches of a tree.

    Raises:
        GrammarError: the tree holds a condition on the text around a place.
    """
    if isinstance(node, Chars):
        return _char_class(node.resolve(generous=False))
    if isinstance(node, Concat):
        return "".join(_grouped(part) if isinstance(part, Alternation) else neutral_regex(part) for part in node.parts)
    if isinstance(node, Alternation):
        return "|".join(map(neutral_regex, node.options))
    if isinstance(node, Repeat):
        most = "" if node.most is None else node.most
        return f"{_grouped(node.body)}{{{node.least},{most}}}"
    raise GrammarError(
        "regex: look-around, and anchors and word boundaries inside, only automata can enforce (grammar backend fsm)"
    )


def neutral_text(text: str) -> str:
    """A regex that matches one text."""
    return "".join(map(_char, map(ord, text)))


def _grouped(node: Node) -> str:
    return f"(?:{neutral_regex(node)})"


def _char_class(chars: CharSet) -> str:
    if not chars:
        return _NOTHING
    if len(chars.ranges) == 1 and chars.ranges[0][0] == chars.ranges[0][1]:
        return _char(chars.ranges[0][0])
    return "[" + "".join(_range(low, high) for low, high in chars.ranges) + "]"


def _range(low: int, high: int) -> str:
    return _char(low) if low == high else f"{_char(low)}-{_char(high)}"


def _char(point: int) -> str:
    char = chr(point)
    return char if char.isascii() and char.isalnum() else f"\\x{{{point:x}}}"
