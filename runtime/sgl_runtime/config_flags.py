"""The fields of RuntimeConfig as options: for `start_options`, and for the keyword arguments of `Engine`."""

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.docstring_attributes import read_attributes
from sgl_runtime.errors import ConfigError
from sgl_runtime.foreign_options import OTHER_NAMES, is_foreign, note_foreign


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
        return flag_of(self.name)

    @property
    def other_flags(self) -> list[str]:
        """Other names that the command line takes."""
        return [flag_of(other) for other, own in OTHER_NAMES.items() if own == self.name]

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return get_origin(self.value_type) is tuple

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
        if self.is_list and isinstance(value, str):
            value = [value]
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.name} is {value!r}; it must be {_allowed(self.value_type)}") from error

    def read(self, text: str) -> Any:
        """The value that a text means, as an environment variable has it; lists are separated by commas.

        Raises:
            ConfigError: it means none.
        """
        if self.is_list:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if self.value_type is str:
            return text
        try:
            return msgspec.convert(text.strip().lower(), self.type, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.name} is {text!r}; it must be {_allowed(self.value_type)}") from error


def config_flags() -> list[ConfigFlag]:
    """Every field of every section, in order."""
    flags: list[ConfigFlag] = []
    for section, section_type in get_type_hints(RuntimeConfig).items():
        assert is_dataclass(section_type)
        hints = get_type_hints(section_type)
        summary, helps = read_attributes(section_type.__doc__ or "")
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
        name = own_name(given_name, flags)
        if name not in flags:
            note_foreign(name, value)
            continue
        sections[flags[name].section][name] = flags[name].checked(value)
    for flag in flags.values():
        if flag.default is MISSING and flag.name not in sections[flag.section]:
            raise ConfigError(f"{flag.name} is missing")
    hints = get_type_hints(RuntimeConfig)
    return RuntimeConfig(**{section: hints[section](**given) for section, given in sections.items()})


def own_name(name: str, flags: Mapping[str, ConfigFlag]) -> str:
    """The name of a field for a name that a user gave; a foreign one that says something else stays.

    Args:
        name: With underscores.
        flags: All fields by name.

    Raises:
        ConfigError: there is no such option; the nearest is named.
    """
    if name in flags:
        return name
    name = OTHER_NAMES.get(name, name)
    if name not in flags and not is_foreign(name):
        hint = nearest(name, list(flags)) or f"; options: {', '.join(flags)}"
        raise ConfigError(f"{name} is not an option{hint}")
    return name


def flag_of(name: str) -> str:
    """A field's name on the command line."""
    return "--" + name.replace("_", "-")


_TYPE_WORDS = {int: "an integer", float: "a number", str: "a string", bool: "True or False"}


def _allowed(value_type: Any) -> str:
    if get_origin(value_type) is Literal:
        return "one of " + ", ".join(repr(word) for word in get_args(value_type))
    return "a list of strings" if get_origin(value_type) is tuple else _TYPE_WORDS[value_type]


def nearest(name: str, known: list[str]) -> str:
    """A hint at the name that was probably meant; empty where none is near."""
    near = difflib.get_close_matches(name.partition("=")[0], known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
