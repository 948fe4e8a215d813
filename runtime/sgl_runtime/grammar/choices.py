"""Front end of `choices`: the output is one of a list of strings."""

import json

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa
from sgl_runtime.grammar.char_set import single
from sgl_runtime.grammar.nfa import Nfa

_SURROGATE_RANGE = range(0xD800, 0xE000)


def choices_to_dfa(text: str, budget: Budget) -> CharDfa:
    """Compile a JSON list of strings.

    Raises:
        GrammarError: the text is no list of strings, or a string cannot be written in UTF-8.
    """
    return strings_to_dfa(parse_choices(text), budget)


def parse_choices(text: str) -> list[str]:
    """Read a JSON list of strings.

    Raises:
        GrammarError: the text is no list of strings, or a string cannot be written in UTF-8.
    """
    try:
        choices = json.loads(text)
    except json.JSONDecodeError as error:
        raise GrammarError(f"choices are not JSON: {error}") from None
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise GrammarError("choices must be a non-empty JSON list of strings")
    for choice in choices:
        check_encodable(choice, "choice")
    return choices


def check_encodable(text: str, what: str) -> None:
    """Refuse text with lone surrogates.

    Raises:
        GrammarError: `text` holds one.
    """
    if not text.isascii() and any(ord(char) in _SURROGATE_RANGE for char in text):
        raise GrammarError(f"{what} {text!r} holds a lone surrogate, which UTF-8 cannot express")


def strings_to_dfa(strings: list[str], budget: Budget) -> CharDfa:
    """The smallest automaton of a list of strings, made from their trie."""
    nfa = Nfa(budget)
    root, accept = nfa.add_states(), nfa.add_states()
    children: dict[tuple[int, str], int] = {}
    for string in strings:
        node = root
        for char in string:
            child = children.get((node, char))
            if child is None:
                child = children[node, char] = nfa.add_states()
                nfa.add_edge(node, single(char), child)
            node = child
        nfa.add_epsilon(node, accept)
    return nfa.to_dfa(root, accept)
