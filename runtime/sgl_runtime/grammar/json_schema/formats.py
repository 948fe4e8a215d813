"""The string formats of JSON Schema, as automata.

What a validator takes for a format differs.  So each format is two regexes on the whole string: `accepted` are strings
that every validator takes, a subset of what the format's RFC says; `possible` are those that some validator may take,
a superset of it.
"""

from dataclasses import dataclass

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa, intersect
from sgl_runtime.grammar.json_schema.address_formats import (
    EMAIL,
    HOSTNAME,
    IDN_EMAIL,
    IDN_HOSTNAME,
    IPV4,
    IPV6,
    SHORT_LOCAL_PART,
    SHORT_U_LOCAL_PART,
)
from sgl_runtime.grammar.json_schema.resource_formats import (
    IRI,
    IRI_REFERENCE,
    URI,
    URI_REFERENCE,
    URI_TEMPLATE,
)
from sgl_runtime.grammar.regex import regex_to_dfa

_ANYTHING = r"(?s:.*)"

# RFC 3339.  Year 0000 is left out, as the date types of most languages do; of leap seconds those written in UTC are in.
_LEAP_YEAR = r"([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_YEAR = r"([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    rf"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    rf"|02-(0[1-9]|1[0-9]|2[0-8]))|(?:{_LEAP_YEAR})-02-29)"
)
_OFFSET = r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_TIME = rf"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?{_OFFSET}|23:59:60(\.[0-9]+)?([Zz]|[+-]00:00))"
_POSSIBLE_DATE = r"[0-9]{4}-?(W?[0-9]{2}-?[0-9]{0,2}|[0-9]{3})"
# RFC 3339, appendix A.
_DURATION_TIME = r"T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_DURATION_DATE = r"([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
_DURATION = rf"P([0-9]+W|{_DURATION_DATE}({_DURATION_TIME})?|{_DURATION_TIME})"
# RFC 4122.
_UUID = r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
# RFC 6901 and its relative form.
_POINTER = r"(/([^~/]|~[01])*)*"
_RELATIVE_POINTER = rf"(0|[1-9][0-9]*)(#|{_POINTER})"

# Regexes that every dialect reads: plain characters, escapes, classes, counts, groups three deep.
_REGEX_COUNT = r"([*+?]|\{([0-9]{1,2},?|[0-9],[1-9][0-9]|[0-9]{1,2},[1-9][0-9]{2})\})\??"
_REGEX_CLASS_ITEM = r"([A-Za-z0-9_ .,:;/@#%=+*!?$]|0-9|1-9|a-z|A-Z|a-f|A-F|\\[dwsDWS.\]\[\\/-])"
_REGEX_ATOM = (
    r"([A-Za-z0-9_ ,:;=@#%&~\"'<>!/.-]|[^\x00-\x7f]|\\[dwsDWS.*+?()\[\]{}|/^$\\]"
    rf"|\[\^?{_REGEX_CLASS_ITEM}+\])"
)


def _regex_alternatives(atom: str) -> str:
    item = rf"{atom}({_REGEX_COUNT})?"
    return rf"\^?({item})*\$?(\|\^?({item})*\$?)*"


_REGEX = _REGEX_ATOM
for _ in range(2):
    _REGEX = rf"({_REGEX_ATOM}|\((\?:)?{_regex_alternatives(_REGEX)}\))"
_REGEX = _regex_alternatives(_REGEX)


@dataclass(frozen=True)
class Format:
    """Two regexes on the whole string.

    Attributes:
        accepted: Strings that have the format for every reader.
        possible: Strings that may have the format for some reader; None where readers agree on `accepted`.
        within: A regex that strings of `accepted` have to match besides.
    """

    accepted: str
    possible: str | None
    within: str | None = None


FORMATS = {
    "date": Format(_DATE, _POSSIBLE_DATE),
    "time": Format(_TIME, r"[0-9]{2}(?s:.*)"),
    "date-time": Format(rf"{_DATE}[Tt]{_TIME}", r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt _](?s:.*)"),
    "duration": Format(_DURATION, r"[Pp+-](?s:.*)"),
    "uuid": Format(_UUID, r"[0-9A-Fa-f{}-]{32,38}|[Uu][Rr][Nn]:(?s:.*)"),
    "email": Format(EMAIL, r"(?s:.*@.*)", SHORT_LOCAL_PART),
    "idn-email": Format(IDN_EMAIL, r"(?s:.*@.*)", SHORT_U_LOCAL_PART),
    "hostname": Format(HOSTNAME, r"[A-Za-z0-9._-]*"),
    "idn-hostname": Format(IDN_HOSTNAME, r"[A-Za-z0-9._-]*|([A-Za-z0-9._-]|[^\x00-\x7f])*"),
    "ipv4": Format(IPV4, r"[0-9A-Fa-fxX.]*"),
    "ipv6": Format(IPV6, r"(?s:.*:.*)"),
    "uri": Format(URI, r"[A-Za-z][A-Za-z0-9+.-]*:(?s:.*)"),
    "iri": Format(IRI, r"[A-Za-z][A-Za-z0-9+.-]*:(?s:.*)"),
    "uri-reference": Format(URI_REFERENCE, r'[^\x00-\x20"<>\\^`{|}\x7f]*'),
    "iri-reference": Format(IRI_REFERENCE, r'[^\x00-\x20"<>\\^`{|}\x7f]*'),
    "uri-template": Format(URI_TEMPLATE, _ANYTHING),
    "json-pointer": Format(_POINTER, None),
    "relative-json-pointer": Format(_RELATIVE_POINTER, None),
    "regex": Format(_REGEX, _ANYTHING),
}


def is_standard_format(name: str) -> bool:
    """Whether a draft of JSON Schema defines the format; other names are annotations."""
    return name in FORMATS


def format_dfa(name: str, budget: Budget, *, wide: bool = False) -> CharDfa:
    """The strings of a standard format: for every reader, or with `wide` for any reader.

    Raises:
        GrammarError: the budget does not suffice.
    """
    wanted = FORMATS[name]
    if wide and wanted.possible is not None:
        return regex_to_dfa(wanted.possible, budget)
    accepted = regex_to_dfa(wanted.accepted, budget)
    return accepted if wanted.within is None else intersect(accepted, regex_to_dfa(wanted.within, budget), budget)
