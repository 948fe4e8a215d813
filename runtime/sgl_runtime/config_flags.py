"""Flags from the fields of RuntimeConfig: for the command line, and for the keyword arguments of `Engine`."""

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.errors import ConfigError

OLD_NAMES = {"disable_outlines_disk_cache": "disable_grammar_disk_cache"}
"""Names that options have in servers whose users may come here."""

_ATTRIBUTE = re.compile(r"^ {8}(\w+): (.*)$")


@dataclass(frozen=True)
class ConfigFlag:
    """One field of a section.

    Attributes:
        section: The section's field in RuntimeConfig.
        section_help: What the section is about.
        name: The field.
        type: Its type.
        default: Its default; MISSING where it must be given.
        help: From the section's docstring.
    """

    section: str
    section_help: str
    name: str
    type: Any
    default: Any
    help: str

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return _flag(self.name)

    @property
    def old_flags(self) -> list[str]:
        """Other names that the command line takes."""
        return [_flag(old) for old, new in OLD_NAMES.items() if new == self.name]

    @property
    def value_type(self) -> Any:
        """The type without `None`."""
        options = [option for option in get_args(self.type) if option is not NoneType]
        # `Literal[...] | None` is a Union, other types with None are a UnionType.
        return options[0] if get_origin(self.type) in (Union, UnionType) else self.type

    def checked(self, value: Any) -> Any:
        """A value of this field's type.

        Raises:
            ConfigError: it is of another type, or not among the allowed words.
        """
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.name} is {value!r}; it must be {_allowed(self.value_type)}") from error


def config_flags() -> list[ConfigFlag]:
    """Every field of every section, in order."""
    flags: list[ConfigFlag] = []
    for section, section_type in get_type_hints(RuntimeConfig).items():
        assert is_dataclass(section_type)
        hints = get_type_hints(section_type)
        summary, helps = _read_docstring(section_type.__doc__ or "")
        flags.extend(
            ConfigFlag(section, summary, field.name, hints[field.name], field.default, helps[field.name])
            for field in fields(section_type)
        )
    return flags


def build_config(values: Mapping[str, Any]) -> RuntimeConfig:
    """A configuration from flat field values.

    Raises:
        ConfigError: a name is unknown (the nearest is named), a value is wrong, or a needed one is missing.
    """
    flags = {flag.name: flag for flag in config_flags()}
    sections: dict[str, dict[str, Any]] = {flag.section: {} for flag in flags.values()}
    for given_name, value in values.items():
        name = OLD_NAMES.get(given_name, given_name)
        if name not in flags:
            hint = _nearest(name, list(flags)) or f"; options: {', '.join(flags)}"
            raise ConfigError(f"{name} is not an option{hint}")
        sections[flags[name].section][name] = flags[name].checked(value)
    for flag in flags.values():
        if flag.default is MISSING and flag.name not in values:
            raise ConfigError(f"{flag.name} is missing")
    hints = get_type_hints(RuntimeConfig)
    return RuntimeConfig(**{section: hints[section](**given) for section, given in sections.items()})


def parse_flags(program: str, arguments: Sequence[str]) -> RuntimeConfig:
    """A configuration from command-line flags; ends the process with code 2 and one sentence when they are wrong.

    Args:
        program: Name for the usage line.
        arguments: The flags.
    """
    usage = f"{program} --model-path TEXT [options]"
    parser = _Parser(prog=program, usage=usage, description="Serve a model over HTTP.", allow_abbrev=False)
    groups: dict[str, Any] = {}
    flags = config_flags()
    for flag in flags:
        if flag.section not in groups:
            groups[flag.section] = parser.add_argument_group(flag.section, flag.section_help)
        _add(groups[flag.section], flag)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"{unknown[0]} is not an option{_nearest(unknown[0], [flag.flag for flag in flags])}")
    try:
        return build_config(vars(given))
    except ConfigError as error:
        parser.error(error.message)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def _add(group: Any, flag: ConfigFlag) -> None:
    required = flag.default is MISSING
    shown = "" if required or flag.default in (None, False) else f" (default: {flag.default})"
    options: dict[str, Any] = {"help": (flag.help + shown).replace("%", "%%"), "default": argparse.SUPPRESS}
    if flag.value_type is bool:
        group.add_argument(flag.flag, *flag.old_flags, dest=flag.name, action="store_true", **options)
    elif get_origin(flag.value_type) is Literal:
        group.add_argument(flag.flag, choices=get_args(flag.value_type), **options)
    else:
        group.add_argument(flag.flag, type=flag.value_type, metavar=_METAVARS[flag.value_type], **options)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


_METAVARS = {int: "N", float: "X", str: "TEXT"}
_TYPE_WORDS = {int: "an integer", float: "a number", str: "a string", bool: "True or False"}


def _allowed(value_type: Any) -> str:
    if get_origin(value_type) is Literal:
        return "one of " + ", ".join(repr(word) for word in get_args(value_type))
    return _TYPE_WORDS[value_type]


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.partition("=")[0], known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """First line of a class's docstring, and the help of each of its attributes."""
    helps: dict[str, str] = {}
    name = None
    for line in text.splitlines():
        begun = _ATTRIBUTE.match(line)
        if begun is not None:
            name = begun.group(1)
            helps[name] = begun.group(2)
        elif name is not None and line.strip():
            helps[name] += " " + line.strip()
    return text.strip().splitlines()[0], helps
