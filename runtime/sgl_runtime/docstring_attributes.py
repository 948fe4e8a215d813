"""What docstrings say of attributes, for help texts and documents that users read."""

import re

# `name: What it is.`, or several names of one shape, indented as the entries of a docstring are.
_ENTRY = re.compile(r"^ {8}(\w+(?:, \w+)*): (.*)$")


def read_attributes(docstring: str) -> tuple[str, dict[str, str]]:
    """First line of a class's docstring, and what it says of each attribute.

    Args:
        docstring: In Google's form, as it stands in the source.
    """
    helps: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.splitlines():
        begun = _ENTRY.match(line)
        if begun is not None:
            names = begun.group(1).split(", ")
            helps.update(dict.fromkeys(names, begun.group(2)))
        elif line.strip():
            helps.update({name: f"{helps[name]} {line.strip()}" for name in names})
    return docstring.strip().splitlines()[0], helps
