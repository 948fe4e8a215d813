"""Formats of resource identifiers (RFC 3986, 3987) and templates of them (RFC 6570), as regexes on the whole string."""

from sgl_runtime.grammar.json_schema.address_formats import IPV6

_PERCENT = r"%[0-9A-Fa-f]{2}"
_UNRESERVED = r"A-Za-z0-9._~\-"
_DELIMITERS = r"!$&'()*+,;="
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*"
_UCS = (
    r"\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    + "".join(rf"\U000{plane:x}0000-\U000{plane:x}fffd" for plane in range(1, 14))
    + r"\U000e1000-\U000efffd"
)
_PRIVATE = r"\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _identifiers(more: str, more_in_query: str) -> tuple[str, str]:
    """The identifiers, and the references to them, that may hold further characters."""
    name = rf"([{_UNRESERVED}{_DELIMITERS}{more}]|{_PERCENT})"
    user = rf"([{_UNRESERVED}{_DELIMITERS}:{more}]|{_PERCENT})"
    char = rf"([{_UNRESERVED}{_DELIMITERS}:@{more}]|{_PERCENT})"
    no_colon = rf"([{_UNRESERVED}{_DELIMITERS}@{more}]|{_PERCENT})"
    future = rf"[vV][0-9A-Fa-f]+\.[{_UNRESERVED}{_DELIMITERS}:]+"
    authority = rf"({user}*@)?(\[({IPV6}|{future})\]|{name}*)(:[0-9]*)?"
    after_authority = rf"(/{char}*)*"
    absolute = rf"/({char}+(/{char}*)*)?"
    tail = rf"(\?({char}|[/?{more_in_query}])*)?(#({char}|[/?])*)?"
    path = rf"//{authority}{after_authority}|{absolute}"
    full = rf"{_SCHEME}:({path}|{char}+(/{char}*)*)?{tail}"
    return full, rf"({full}|({path}|{no_colon}+(/{char}*)*)?{tail})"


URI, URI_REFERENCE = _identifiers("", "")
IRI, IRI_REFERENCE = _identifiers(_UCS, _PRIVATE)

_VAR_CHAR = rf"([A-Za-z0-9_]|{_PERCENT})"
_VARIABLE = rf"{_VAR_CHAR}(\.?{_VAR_CHAR})*(:[1-9][0-9]{{0,3}}|\*)?"
_LITERAL = rf"([!#$&'()*+,./0-9:;=?@A-Z\[\]_a-z~{_UCS}{_PRIVATE}-]|{_PERCENT})"
URI_TEMPLATE = rf"({_LITERAL}|\{{[+#./;?&]?{_VARIABLE}(,{_VARIABLE})*\}})*"
