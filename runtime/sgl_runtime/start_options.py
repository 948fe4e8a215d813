"""Start-up options of a command: flags, then the environment, then a file, then defaults; and where each came from."""

import argparse
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

import yaml

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_flags import ConfigFlag, build_config, config_flags, flag_of, nearest, own_name
from sgl_runtime.config_serving import SECRET_FIELDS
from sgl_runtime.config_values import ENVIRONMENT_PREFIX, environment_options
from sgl_runtime.errors import ConfigError
from sgl_runtime.foreign_options import ONLY_VALUES, REFUSED, SAYS_NOTHING, note_foreign


@dataclass(frozen=True)
class StartOptions:
    """What a command was started with.

    Attributes:
        config: The configuration.
        origins: For each field that was set, where: "flag", "environment" or the path of the file.
        notes: What is to be said once of options that change nothing.
        print_config: Only the configuration is wanted.
    """

    config: RuntimeConfig
    origins: Mapping[str, str]
    notes: Sequence[str] = ()
    print_config: bool = False

    def differences(self) -> list[str]:
        """A line for each field that was set: its value, what it is by default, and where it was set."""
        lines = []
        for flag in config_flags():
            if flag.name not in self.origins:
                continue
            default = "" if flag.default is MISSING else f" (default {_shown(flag.name, flag.default)})"
            value = _shown(flag.name, self.value_of(flag))
            lines.append(f"{flag.name}={value}{default} from {self.origins[flag.name]}")
        return lines

    def as_toml(self) -> str:
        """The whole configuration, in the form that `--config` reads; what is unset or secret is a comment."""
        lines: list[str] = []
        section = None
        for flag in config_flags():
            if flag.section != section:
                section = flag.section
                lines += ["", f"# {flag.section}: {flag.section_help}"]
            value = self.value_of(flag)
            origin = f"  # from {self.origins[flag.name]}" if flag.name in self.origins else ""
            if value is None:
                lines.append(f"# {flag.name} =")
            elif flag.name in SECRET_FIELDS and value:
                lines.append(f"# {flag.name} = ***{origin}")
            else:
                lines.append(f"{flag.name} = {_toml(value)}{origin}")
        return "\n".join(lines).lstrip()

    def value_of(self, flag: ConfigFlag) -> Any:
        """What a field is set to."""
        return vars(vars(self.config)[flag.section])[flag.name]


def parse_options(program: str, arguments: Sequence[str]) -> StartOptions:
    """The options of a command; ends the process with code 2 and one sentence when they are wrong.

    Args:
        program: Name for the usage line.
        arguments: The flags.
    """
    flags = {flag.name: flag for flag in config_flags()}
    parser = _parser(program, list(flags.values()))
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"{unknown[0]} is not an option{nearest(unknown[0], [flag.flag for flag in flags.values()])}")
    from_flags = vars(given)
    file, print_config = from_flags.pop("config", None), from_flags.pop("print_config", False)
    try:
        layers = [
            *([(file, _read_file(file))] if file is not None else []),
            ("environment", environment_options()),
            ("flag", from_flags),
        ]
        values, origins, notes = _merge(layers, flags)
        return StartOptions(build_config(values), origins, notes, print_config)
    except ConfigError as error:
        parser.error(error.message)


def _merge(
    layers: list[tuple[str, Mapping[str, Any]]], flags: Mapping[str, ConfigFlag]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Values, origins and notes; a later layer wins."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    notes: list[str] = []
    for origin, layer in layers:
        for given_name, given in layer.items():
            name = given_name.replace("-", "_")
            if origin == "environment":
                # Others may use the prefix too: what is no option of ours is left alone.
                if name not in flags:
                    continue
                value = _from_environment(flags[name], given)
            else:
                value, name = given, _named(name, origin, flags)
            if name not in flags:
                notes.append(note_foreign(name, value))
            else:
                values[name], origins[name] = value, origin
    return values, origins, notes


def _from_environment(flag: ConfigFlag, text: str) -> Any:
    try:
        return flag.read(text)
    except ConfigError as error:
        raise ConfigError(f"environment variable {ENVIRONMENT_PREFIX}{flag.name.upper()}: {error.message}") from error


def _named(name: str, origin: str, flags: Mapping[str, ConfigFlag]) -> str:
    try:
        return own_name(name, flags)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error.message}") from error


def _read_file(path: str) -> Mapping[str, Any]:
    """The options of a TOML or YAML file; tables in it only group them.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.endswith(".toml") else yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"config is {path!r}, which cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        kind = "TOML" if path.endswith(".toml") else "YAML"
        raise ConfigError(f"config is {path!r}, which is no {kind}: {' '.join(str(error).split())}") from error
    # A YAML file of comments alone holds nothing at all.
    if not isinstance(content, dict | None):
        raise ConfigError(f"config is {path!r}; it must hold names and values")
    flat: dict[str, Any] = {}
    for group, grouped in (content or {}).items():
        for name, value in grouped.items() if isinstance(grouped, dict) else [(group, grouped)]:
            if not isinstance(name, str):
                raise ConfigError(f"config is {path!r}; its names must be strings")
            plain = name.replace("-", "_")
            if plain in flat:
                raise ConfigError(f"config is {path!r}, which sets {plain} twice")
            flat[plain] = value
    return flat


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


MAX_HELP_WIDTH = 110
_EPILOG = (
    "Options come from flags, then from environment variables (SGL_PORT for --port), then from the file of --config,"
    " then from defaults. --no-NAME turns off a switch that the environment or the file turns on."
)


def _parser(program: str, flags: Sequence[ConfigFlag]) -> _Parser:
    width = min(shutil.get_terminal_size().columns, MAX_HELP_WIDTH)
    parser = _Parser(
        prog=program,
        usage=f"{program} --model-path TEXT [options]",
        description="Serve a model over HTTP.",
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=width),
    )
    parser.add_argument(
        "--config", metavar="FILE", default=argparse.SUPPRESS, help="Read options from a file, TOML or YAML."
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        default=argparse.SUPPRESS,
        help="Print the configuration as a file for --config, and end.",
    )
    groups: dict[str, Any] = {}
    for flag in flags:
        if flag.section not in groups:
            groups[flag.section] = parser.add_argument_group(flag.section, flag.section_help)
        _add(parser, groups[flag.section], flag)
    _add_foreign(parser, {flag.name for flag in flags})
    return parser


def _add(parser: _Parser, group: Any, flag: ConfigFlag) -> None:
    is_plain = flag.default is MISSING or flag.default is None or flag.default is False or flag.default in ((), "")
    shown = "" if is_plain else f" (default: {_shown(flag.name, flag.default)})"
    options: dict[str, Any] = {
        "dest": flag.name,
        "help": (flag.help + shown).replace("%", "%%"),
        "default": argparse.SUPPRESS,
    }
    names = [flag.flag]
    if flag.value_type is bool:
        group.add_argument(*names, action="store_true", **options)
        options["help"] = argparse.SUPPRESS
        parser.add_argument(flag_of("no_" + flag.name), action="store_false", **options)
        options["action"] = "store_true"
    elif flag.is_list:
        options.update(nargs="+", action="extend", metavar="TEXT")
        group.add_argument(*names, **options)
    elif get_origin(flag.value_type) is Literal:
        words = get_args(flag.value_type)
        options.update(choices=words, type=type(words[0]))
        if sum(map(len, map(str, words))) > MAX_SHOWN_CHOICES:
            options["metavar"] = "NAME"
            options["help"] += " One of: " + ", ".join(words) + "."
        group.add_argument(*names, **options)
    else:
        options.update(type=flag.value_type, metavar=_METAVARS[flag.value_type])
        group.add_argument(*names, **options)
    if flag.other_flags:
        parser.add_argument(*flag.other_flags, **{**options, "help": argparse.SUPPRESS})


def _add_foreign(parser: _Parser, own: set[str]) -> None:
    """Options of other servers: known, so that what they come to can be said."""
    for name in SAYS_NOTHING.keys() - own:
        parser.add_argument(flag_of(name), action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for name in (ONLY_VALUES.keys() | REFUSED.keys()) - own:
        parser.add_argument(flag_of(name), nargs="?", const="true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


MAX_SHOWN_CHOICES = 60
_METAVARS = {int: "N", float: "X", str: "TEXT"}


def _shown(name: str, value: Any) -> str:
    if name in SECRET_FIELDS and value:
        return "***"
    return ",".join(value) or "none" if isinstance(value, tuple) else str(value)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    return str(value) if isinstance(value, int | float) else _quoted(value)


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
