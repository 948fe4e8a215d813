"""Formats of hosts and mail addresses, as regexes on the whole string."""

_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"({_BYTE}\.){{3}}{_BYTE}"

# RFC 3986: eight groups of 16 bits, the last two perhaps as an IPv4 address, one run of groups left out.
_GROUP = r"[0-9A-Fa-f]{1,4}"
_LAST_TWO = rf"({_GROUP}:{_GROUP}|{IPV4})"
IPV6 = (
    "("
    + "|".join(
        (
            rf"({_GROUP}:){{6}}{_LAST_TWO}",
            rf"::({_GROUP}:){{5}}{_LAST_TWO}",
            *(rf"(({_GROUP}:){{0,{before}}}{_GROUP})?::({_GROUP}:){{{4 - before}}}{_LAST_TWO}" for before in range(5)),
            rf"(({_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}",
            rf"(({_GROUP}:){{0,6}}{_GROUP})?::",
        )
    )
    + ")"
)


def _label(max_len: int, letters: str = "A-Za-z") -> str:
    """A label of a host name.

    Labels that begin like Punycode, with hyphens in third and fourth place, are left out: whether they decode is no
    regular question.
    """
    edge, inner = rf"[0-9{letters}]", rf"[0-9{letters}-]"
    return rf"({edge}({inner}?{edge})?|{edge}{inner}(({edge}{inner}|-{edge}){inner}{{0,{max_len - 5}}}|-|{edge}){edge})"


# RFC 1123.  At most 253 characters in all.
HOSTNAME = rf"{_label(63)}(\.{_label(30)}){{0,6}}"
_DOMAIN = rf"{_label(63)}(\.{_label(30)}){{1,4}}"

# RFC 5321: at most 64 characters before the @, 254 in all.
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"([ !#-\[\]-~]|\\[ -~]){0,30}"'
_DOT_ATOM = rf"{_ATOM}(\.{_ATOM})*"
EMAIL = rf"({_DOT_ATOM}|{_QUOTED})@{_DOMAIN}|{_DOT_ATOM}@\[({IPV4}|IPv6:{IPV6})\]"
SHORT_LOCAL_PART = r'[^@]{1,64}@[^@]*|"[^"](?s:.*)'

# RFC 5892: letters that are valid wherever they stand, read from left to right, and are their own canonical form.
_LETTERS = (
    r"a-z\u00df-\u00f6\u00f8-\u00ff\u03ac-\u03af\u03b1-\u03c9\u03cc-\u03ce\u0430-\u045f\u0904-\u0939\u3041-\u3096"
    r"\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
# Eleven letters are at most 59 characters of Punycode.
_U_LABEL = _label(11, _LETTERS)
_SHORT_LABEL = rf"({_label(30)}|{_U_LABEL})"
_SEPARATOR = r"[.\u3002\uff0e\uff61]"
IDN_HOSTNAME = rf"({_label(63)}|{_U_LABEL})({_SEPARATOR}{_SHORT_LABEL}){{0,6}}"
# RFC 6531: the limit is 64 octets.
_U_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]+"
_U_LOCAL = rf"{_U_ATOM}(\.{_U_ATOM})*"
IDN_EMAIL = rf"({_U_LOCAL}|{_QUOTED})@{_SHORT_LABEL}(\.{_SHORT_LABEL}){{1,4}}"
SHORT_U_LOCAL_PART = r'([^@]{1,16}|[\x00-?A-\x7f]{1,64})@[^@]*|"[^"](?s:.*)'
