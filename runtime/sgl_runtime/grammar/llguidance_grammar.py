"""From what a request asks for to a grammar in llguidance's form of Lark, and the check of one in a worker process."""

import json
import re
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark, is_lark_syntax

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton_record import Record
from sgl_runtime.grammar.base import GrammarSpec, one_line
from sgl_runtime.grammar.choices import parse_choices
from sgl_runtime.grammar.json_schema.front_end import parse_schema
from sgl_runtime.grammar.neutral_regex import neutral_regex, neutral_text
from sgl_runtime.grammar.regex import whole_tree
from sgl_runtime.grammar.structural_tags import read_structural_tag
from sgl_runtime.grammar.worker_setup import Task, WorkerSetup

LIMITS = LLParserLimits(verbose_errors=False)
_DEAD_END = "NoExtension"

# Without `no_forcing` a mask holds one token where some bytes are forced, and the search for forced bytes has no end
# for a grammar in which they never end.  A later directive wins, so that a request cannot turn it off.
_DIRECTIVE = '\n%llguidance {"no_forcing": true, "allow_invalid_utf8": false}\n'
_SEPARATORS = {"compact": (",", ":"), "single_space": (", ", ": "), "flexible": (",", ":")}
_FLEXIBLE_SPACE = r"( |\n {0,20})?"
_SOURCE_LINE = re.compile(r"\s*\d+ \||\s*\^\s*$")
_GBNF_PART = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|\.', re.DOTALL)
_GBNF_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)
_LAST_CHAR = "\U0010ffff"


def lark_of(spec: GrammarSpec, config: GrammarConfig) -> str:
    """The grammar of a spec, as text in Lark.

    Raises:
        GrammarError: the spec is malformed; errors that only llguidance sees come later.
    """
    writers = {
        "choices": lambda: f"start: /{'|'.join(map(neutral_text, parse_choices(spec.text)))}/",
        "regex": lambda: f"start: /{neutral_regex(whole_tree(spec.text))}/",
        "json_schema": lambda: f"start: {_json(parse_schema(spec.text), config, lenient=spec.lenient)}",
        "structural_tag": lambda: _tags(spec.text, config),
        "ebnf": lambda: _ebnf(spec.text),
    }
    return writers[spec.kind]() + _DIRECTIVE


def check_matcher(matcher: LLMatcher, kind: str) -> None:
    """Refuse a grammar that cannot be used.

    Raises:
        GrammarError: it is malformed, not supported or too large, or allows no output.
    """
    if not matcher.is_error():
        # A grammar may pass a limit only when the first mask is made.
        matcher.compute_bitmask()
    if matcher.is_error() and matcher.get_error().startswith(_DEAD_END):
        raise GrammarError(f"no output at all satisfies this {kind}")
    if matcher.is_error():
        raise matcher_error(matcher, kind)


def matcher_error(matcher: LLMatcher, kind: str) -> GrammarError:
    """What a matcher says is wrong, as one line without excerpts of the grammar."""
    if matcher.get_error().startswith(_DEAD_END):
        return GrammarError("no token of this model can continue the constrained output")
    text = matcher.get_error().partition("<backtrace>")[0].partition("<non-verbose/>")[0]
    lines = [line.strip() for line in text.splitlines() if not _SOURCE_LINE.match(line)]
    message = " ".join(line for line in lines if line and line != "^")
    return GrammarError(one_line(f"{kind}: llguidance: {message}"))


def relaxed_keys(warnings: list[str]) -> list[str]:
    """The keywords that llguidance says it leaves out."""
    names: list[str] = []
    for warning in warnings:
        _, is_keys, listed = warning.partition("Unimplemented keys: ")
        names += json.loads(listed) if is_keys else []
    return sorted(set(names))


def check_task(setup: WorkerSetup) -> Task:
    """Compiles grammars for bytes alone, so that those which crash or never end do so in a worker process."""
    tokenizer = LLTokenizer("byte")

    def run(spec: GrammarSpec) -> Record:
        lark = lark_of(spec, setup.config)
        check_matcher(LLMatcher(tokenizer, lark, log_level=0, limits=LIMITS), spec.kind)
        return {"lark": lark}, {}

    return run


def _json(schema: Any, config: GrammarConfig, *, lenient: bool) -> str:
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    if not isinstance(schema, dict):
        raise GrammarError(f"json_schema: # is {schema!r}; a schema is an object or a boolean")
    item, key = _SEPARATORS[config.json_whitespace]
    options: dict[str, Any] = {"item_separator": item, "key_separator": key, "lenient": lenient}
    if config.json_whitespace == "flexible":
        options["whitespace_pattern"] = _FLEXIBLE_SPACE
    else:
        options["whitespace_flexible"] = False
    return "%json " + json.dumps({**schema, "x-guidance": options})


def _tags(text: str, config: GrammarConfig) -> str:
    """Free text up to a trigger, a part that begins with it, and so on; the last text holds no trigger."""
    parts, triggers = read_structural_tag(text)
    any_trigger = "|".join(neutral_text(trigger.decode()) for trigger in triggers)
    lines = [
        f"start: ({' | '.join(f'tag_{index}' for index in range(len(triggers)))})* TAIL",
        f"TAIL: /(?s:.*)/ & ~/(?s:.*)({any_trigger})(?s:.*)/",
    ]
    for index, trigger in enumerate(triggers):
        options = [
            " ".join(
                filter(
                    None,
                    (
                        _literal(part.begin[len(trigger) :]),
                        _json(part.schema, config, lenient=False),
                        _literal(part.end),
                    ),
                )
            )
            for part in parts
            if part.begin.startswith(trigger)
        ]
        if not options:
            # Nothing may follow the trigger: it may not come.
            options = ["/[a&&b]/"]
        head = neutral_text(trigger.decode())
        lines += [
            f"tag_{index}: head_{index} ({' | '.join(options)})",
            f"head_{index}[lazy]: HEAD_{index}",
            f"HEAD_{index}: /(?s:.*){head}/ & ~/(?s:.*)({any_trigger})(?s:.+)/",
        ]
    return "\n".join(lines)


def _literal(data: bytes) -> str:
    return f"/{neutral_text(data.decode())}/" if data else ""


def _ebnf(text: str) -> str:
    if is_lark_syntax(text) or "::=" not in text:
        return text
    try:
        return gbnf_to_lark(_GBNF_PART.sub(lambda part: _plain_gbnf(part.group()), text))
    except (GbnfToLarkError, IndexError) as error:
        raise GrammarError(one_line(f"ebnf: {error}")) from None
    except RecursionError:
        raise GrammarError("this ebnf is nested too deep") from None
    # The converter raises a plain Exception for a rule that is missing or there twice.
    except Exception as error:
        raise GrammarError(one_line(f"ebnf: {error}")) from None


def _plain_gbnf(part: str) -> str:
    """A string, class or dot of GBNF in forms that the converter gets right."""
    if part == ".":
        return f"[\\x00-{_LAST_CHAR}]"
    return part if part.startswith("#") else _GBNF_ESCAPE.sub(_unescaped, part)


def _unescaped(escape: "re.Match[str]") -> str:
    digits = escape.group(1) or escape.group(2)
    if digits is None:
        return escape.group()
    point = int(digits, 16)
    if point > ord(_LAST_CHAR) or 0xD800 <= point <= 0xDFFF:
        raise GrammarError(f"ebnf: {escape.group()} is no character")
    return f"\\x{point:02x}" if point < 0x80 else chr(point)
