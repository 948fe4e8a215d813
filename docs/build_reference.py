"""Writes the reference in docs/language.md from the docstrings of `sgl`; the text above the marker is left alone.

python docs/build_reference.py           # after a docstring has changed
python docs/build_reference.py --check   # whether it is up to date
"""

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sgl
from sgl.output_types import OutputType
from sgl.sampling import SamplingParams
from sgl.tools import ToolSet

PAGE = Path(__file__).with_name("language.md")
MARKER = "<!-- What follows is written by docs/build_reference.py from the docstrings. -->\n"
# Not public names, but those of the tables that docstrings refer to.
DETAILS = {"SamplingParams": SamplingParams, "OutputType": OutputType, "ToolSet": ToolSet}
SECTIONS = {
    "Programs": [
        *("function", "Function", "set_default_backend", "flush_cache", "get_server_info", "global_config"),
        *("ChatTemplate", "get_chat_template"),
    ],
    "Expressions": [
        *("gen", "gen_int", "gen_string", "select", "separate_reasoning", "image", "video"),
        *("system", "user", "assistant", "system_begin", "system_end"),
        *("user_begin", "user_end", "assistant_begin", "assistant_end"),
    ],
    "Details of expressions": list(DETAILS),
    "States": ["ProgramState", "AsyncProgramState", "ProgramStateGroup", "AsyncProgramStateGroup", "BatchFailure"],
    "Choices": [
        *("token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"),
        *("exact_sequence_probability", "ChoicesMethod", "ScoredChoice", "ChoiceDecision", "Choice"),
    ],
    "Tools and results": ["describe_tools", "ToolCalls", "ToolCall", "Partial", "Usage"],
    "Recordings": ["record", "Recording"],
    "Backends": [
        *("Engine", "ServerArgs", "RuntimeEndpoint", "Runtime"),
        *("OpenAI", "LiteLLM", "Anthropic", "VertexAI", "Crusoe"),
        *("ScriptedBackend", "Backend", "Capabilities"),
    ],
    "Errors": [
        *("SglError", "ArgumentError", "UnsupportedError", "UnknownVariableError", "ProgramError", "ResultError"),
        *("TruncatedError", "BackendError", "TraceError"),
    ],
}
# Belongs to the runtime, whose packages this script does not need.
ENGINE = (
    "#### `Engine(model_path, ...)`\n\nThe model in this process: the runtime's class, loaded when it is first named.\n"
)
LONGEST_HEADING = 80
HEADING = re.compile(r"(Args|Attributes|Returns|Raises):")
ENTRY = re.compile(r"(\*{0,2}[\w, *]+): (.*)")


def reference() -> str:
    """The generated part of the page."""
    named = [name for names in SECTIONS.values() for name in names]
    left_out = set(sgl.__all__) - {*named, "__version__"}
    assert not left_out, f"give these a section: {sorted(left_out)}"
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, names in SECTIONS.items():
        yield f"\n### {title}\n"
        for name in names:
            if name in DETAILS:
                yield f"#### `{name}`\n\n{_markdown(DETAILS[name])}"
            else:
                yield ENGINE if name == "Engine" else _entry(name, sgl.__dict__[name])


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        members = [_member(value, own) for own in _public_members(value)]
        head = _head("####", "class ", name, _class_signature(value))
        return "\n".join([f"{head}\n", _markdown(value), *members])
    if inspect.isfunction(value):
        return f"{_head('####', '', name, _signature(value))}\n\n{_markdown(value)}"
    return f"#### `{name}`\n\n{_markdown(type(value))}"


def _head(level: str, word: str, name: str, signature: str) -> str:
    """A heading; a long signature stands below it."""
    if len(name) + len(signature) <= LONGEST_HEADING:
        return f"{level} {word}`{name}{signature}`"
    lines = textwrap.wrap(signature, 100, subsequent_indent="    ", break_long_words=False)
    return f"{level} {word}`{name}`\n\n```text\n{name}" + "\n".join(lines) + "\n```"


def _public_members(owner: type) -> Iterator[str]:
    seen = set()
    for base in owner.__mro__:
        if base.__module__.partition(".")[0] == "sgl":
            for name, member in vars(base).items():
                is_public = not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
                if is_public and name not in seen:
                    seen.add(name)
                    yield name


def _member(owner: type, name: str) -> str:
    member = inspect.getattr_static(owner, name)
    if isinstance(member, property):
        return f"##### `.{name}`\n\n{_markdown(member)}"
    word = "await " if inspect.iscoroutinefunction(member) else ""
    return f"{_head('#####', word, f'.{name}', _signature(member, skip=1))}\n\n{_markdown(member)}"


def _class_signature(owner: type) -> str:
    if inspect.isabstract(owner) or "__init__" not in vars(owner):
        return ""
    return _signature(vars(owner)["__init__"], skip=1)


def _signature(function: Any, *, skip: int = 0) -> str:
    """Names and defaults, without annotations."""
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    return str(inspect.Signature([_bare(parameter) for parameter in parameters]))


class _Default:
    """A default too long to be shown."""

    def __repr__(self) -> str:
        return "..."


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    is_long = isinstance(parameter.default, frozenset)
    default = _Default() if is_long else parameter.default
    return parameter.replace(annotation=inspect.Parameter.empty, default=default)


def _markdown(documented: Any) -> str:
    """A docstring in Google's form as Markdown."""
    lines = []
    is_entry = False
    for line in (inspect.getdoc(documented) or "").splitlines():
        heading = HEADING.fullmatch(line)
        if heading is not None:
            lines += [f"**{heading[1]}**", ""]
            is_entry = True
        elif is_entry and line.startswith("    "):
            text = line[4:]
            entry = ENTRY.fullmatch(text)
            if not text.startswith(" "):
                text = f"- `{entry[1]}`: {entry[2]}" if entry is not None else f"- {text}"
            lines.append(text if text.startswith("-") else f"  {text.strip()}")
        else:
            is_entry = is_entry and not line
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is out of date")
    is_check = parser.parse_args().check
    old = PAGE.read_text(encoding="utf-8")
    prose, marker, _ = old.partition(MARKER)
    assert marker, f"{PAGE} lacks the line {MARKER!r}"
    new = prose + MARKER + reference()
    if is_check:
        sys.exit(0 if new == old else f"{PAGE} is out of date: run python docs/build_reference.py")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
