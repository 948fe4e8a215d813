"""Constraints that are meant to hurt: known ones, and random ones."""

import json
import random
from collections.abc import Callable
from typing import Any

from sgl_runtime.grammar.base import GrammarSpec

WORDS = [f"word{number}" for number in range(500)]


def nested(key: str, depth: int) -> str:
    return f'{{"{key}":' * depth + "{}" + "}" * depth


def unions(levels: int) -> dict[str, Any]:
    """2 ** levels ways to be an instance."""
    fields = {f"f{n}": {"anyOf": [{"const": n}, {"type": "string", "minLength": n}]} for n in range(levels)}
    return {"allOf": [{"anyOf": [{"required": [name]}, {"properties": {name: fields[name]}}]} for name in fields]}


def chain(length: int) -> dict[str, Any]:
    defs = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "null"}}}


def doubling(levels: int) -> dict[str, Any]:
    """Each definition names the next one twice."""
    defs: dict[str, Any] = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "integer"}}}


def tower(
    levels: int, wrap: Callable[[dict[str, Any], int], dict[str, Any]], *, upwards: bool = False
) -> dict[str, Any]:
    """Definitions that each say something about the one before; read from the first one on, or from the last."""
    defs: dict[str, Any] = {"d0": {"type": "integer"}}
    for n in range(levels):
        defs[f"d{n + 1}"] = wrap({"$ref": f"#/$defs/d{n}"}, n)
    if upwards:
        return {"type": "object", "properties": {name: {"$ref": f"#/$defs/{name}"} for name in defs}, "$defs": defs}
    return {"$ref": f"#/$defs/d{levels}", "$defs": defs}


def deep_schemas(levels: int) -> list[Any]:
    """What nests values, schemas about one value, or names, so many levels deep."""
    return [
        tower(levels, lambda inner, n: inner),
        tower(levels, lambda inner, n: {"allOf": [inner], "unevaluatedProperties": False}),
        tower(levels, lambda inner, n: {"if": inner, "then": {"minimum": n}}),
        tower(levels, lambda inner, n: {"dependentSchemas": {f"k{n}": inner}}),
        tower(levels, lambda inner, n: {"type": "object", "properties": {"x": inner}, "required": ["x"]}),
        tower(levels, lambda inner, n: {"type": "array", "items": inner}),
        tower(levels, lambda inner, n: {"not": {"allOf": [inner, {"maximum": n}]}}, upwards=True),
        tower(levels, lambda inner, n: {"oneOf": [inner, {"const": f"v{n}"}]}, upwards=True),
        {"type": "object", "properties": {"a" * (n + 1): {"type": "null"} for n in range(min(levels, 2000))}},
        {"enum": ["a" * (n + 1) for n in range(min(levels, 2000))]},
    ]


SCHEMAS: list[Any] = [
    {"minItems": 10**9, "type": "array"},
    {"maxItems": 10**9},
    {"minLength": 10**9, "type": "string"},
    {"maxLength": 10**9},
    {"minProperties": 10**9},
    {"maxProperties": 10**9},
    {"contains": {"const": 1}, "minContains": 10**9},
    {"minItems": 10**30},
    {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    {"type": "number", "multipleOf": 1e-300},
    {"type": "number", "multipleOf": 999_999_937, "minimum": 1e15},
    {"type": "integer", "multipleOf": 10**40},
    {"enum": WORDS},
    {"enum": [10**400, "x" * 100_000, [[[[]]]]]},
    {"const": "\ud800"},
    {"properties": {"\udfff": {}}},
    {"pattern": "[ab]*a[ab]{20}"},
    {"pattern": ".{1,2000}", "type": "string"},
    {"pattern": "(", "type": "string"},
    {"pattern": "\ud800"},
    {"pattern": "^(a|b|ab)*$", "minLength": 500, "maxLength": 600, "format": "email"},
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"allOf": [{"$ref": "#"}]},
    {"not": {"$ref": "#"}},
    {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    {"items": {"$ref": "#"}, "type": "array", "minItems": 1},
    {"$ref": "https://example.com/schema.json"},
    {"$ref": 3},
    {"$ref": "#/$defs/\ud800"},
    {"anyOf": [{"properties": {f"k{n}": {"minimum": n}}, "required": [f"k{n}"]} for n in range(1000)]},
    {"anyOf": [{"const": n} for n in range(1000)]},
    {"oneOf": [{"minimum": n, "maximum": 2 * n} for n in range(200)]},
    {"allOf": [{"pattern": f"a.{{{n}}}b"} for n in range(30)]},
    {"properties": {f"p{n}": {} for n in range(2000)}, "required": [f"p{n}" for n in range(0, 2000, 7)]},
    {"patternProperties": {f"^{chr(97 + n)}.*{n}$": {"type": "integer"} for n in range(20)}},
    {"dependentRequired": {f"a{n}": [f"a{n + 1}"] for n in range(60)}},
    {"uniqueItems": True, "items": {"enum": list(range(30))}, "type": "array"},
    {"if": {"properties": {"a": {"const": 1}}}, "then": {"not": {"required": ["b"]}}, "else": {"$ref": "#"}},
    unions(12),
    unions(40),
    chain(3000),
    doubling(60),
    *deep_schemas(100),
    *deep_schemas(2000),
    {"type": ["string"] * 1000},
    {"type": {}},
    {"required": "x"},
    {"properties": []},
    {"items": 3},
    [],
    "string",
    0,
    None,
    True,
    False,
]
TEXTS = [
    "",
    "{",
    '{"type": "object"',
    '{"a": NaN}',
    '{"minimum": 1e999}',
    '{"minimum": ' + "9" * 10_000 + "}",
    "[" * 100_000,
    '{"a":' * 50_000,
    nested("not", 150),
    nested("not", 5000),
    nested("items", 1000),
    nested("allOf", 50),
    '{"type": "object"}' * 2,
    '{"type": "string", "type": "integer"}',
    "\x00",
    "nul",
]
REGEXES = [
    "",
    "[ab]*a[ab]{20}",
    "[ab]*a[ab]{400}",
    ".{1,2000}",
    ".{1000000000}",
    "(a{1000}){1000}",
    "((((a{1,100}){1,100}){1,100}){1,100}){1,100}",
    "(?:a?){300}a{300}",
    "(a*)*b",
    "(a|a|a)*" * 30,
    "(" * 5000 + "a" + ")" * 5000,
    "(" * 150 + "a" + ")" * 150,
    "(?:.*[a-f]){9}(?:.*a.*b.{12}){6}",
    "(?=.*a.{30})(?=.*b.{30})(?=.*c.{30}).*",
    r"(?<!a.{20}b).*",
    r"\p{L}{200}",
    "(?i)[^\\W]{1,300}x",
    "|".join(WORDS),
    "(?:" + "|".join(WORDS) + "){1,30}",
    "(?:" + "|".join(WORDS) + ")(?:, (?:" + "|".join(WORDS) + ")){0,9}",
    "[" + "".join(chr(n) for n in range(0x100, 0x3000, 2)) + "]{50}",
    "\ud800",
    "[\ud800-\udfff]",
    "\x00{1,100}",
    "(?P<n>a)(?P=n)",
    "a{,}",
    "[z-a]",
    "\\",
    "(?",
    "*",
    "x" * 20_000,
    "x?" * 3000,
    r"(?:\b\w+\b ?){1,50}",
]
GRAMMARS = [
    "",
    "root ::= root",
    "root ::= " + "(" * 5000,
    'root ::= "a" | root root root',
    "start: start",
    "start: " + "a " * 10_000,
    'start: "a"{1000000000}',
    "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(30_000)) + '\nr30000: "a"',
    'root ::= "\ud800"',
    "start: /(/",
    'start: AS "ab"\nAS: /a+/',
    "start: %json " + nested("items", 5000),
    "%llguidance {",
    "start: <|endoftext|> <[0]>",
    "\x00",
    "root ::= [",
    'root ::= "' + "x" * 100_000 + '"',
]
TAGS: list[Any] = [
    {"structures": [{"begin": "<a", "schema": {"maxItems": 10**9}, "end": ""}], "triggers": ["<"]},
    {"structures": [{"begin": f"<{n}>", "schema": {}, "end": "x"} for n in range(500)], "triggers": ["<"]},
    {"structures": [{"begin": "x" * 5000, "schema": {}, "end": "y" * 5000}], "triggers": ["x" * 4000]},
    {"structures": [], "triggers": []},
    {"structures": [{"begin": "\ud800", "schema": {}, "end": ""}], "triggers": ["\ud800"]},
    [],
]


def known_specs() -> list[GrammarSpec]:
    specs = [GrammarSpec("json_schema", json.dumps(schema)) for schema in SCHEMAS]
    specs += [GrammarSpec("json_schema", text) for text in TEXTS]
    specs += [GrammarSpec("json_schema", json.dumps(schema), lenient=True) for schema in SCHEMAS[1::6]]
    specs += [GrammarSpec("regex", regex) for regex in REGEXES]
    specs += [GrammarSpec("ebnf", grammar) for grammar in GRAMMARS]
    specs += [GrammarSpec("structural_tag", json.dumps(tag)) for tag in TAGS]
    specs += [GrammarSpec("choices", json.dumps(choices)) for choices in ([], WORDS, ["\ud800"], ["x" * 100_000], [1])]
    return specs


def random_regex(rng: random.Random, depth: int = 0) -> str:
    if depth > 4 or rng.random() < 0.3:
        atoms = [
            "a",
            "b",
            ".",
            "[a-f]",
            r"\w",
            r"\d",
            "é",
            "[^x]",
            r"\b",
            "^",
            "$",
            "(?=a)",
            r"\p{L}",
            "(",
            "]",
            "\\",
            "",
        ]
        return rng.choice(atoms)
    form = rng.randrange(5)
    if form == 0:
        return "".join(random_regex(rng, depth + 1) for _ in range(rng.randrange(5)))
    if form == 1:
        return "(" + "|".join(random_regex(rng, depth + 1) for _ in range(rng.randrange(1, 4))) + ")"
    if form == 2:
        counts = ["*", "+", "?", "{3}", "{0,40}", "{2,}", "{1,900}", "{99999999}", "*?", "{5,2}"]
        return f"(?:{random_regex(rng, depth + 1)}){rng.choice(counts)}"
    if form == 3:
        return f"({rng.choice(['?=', '?!', '?<=', '?<!', '?i:', '?:'])}{random_regex(rng, depth + 1)})"
    return random_regex(rng, depth + 1) + random_regex(rng, depth + 1)


def random_value(rng: random.Random, depth: int = 0) -> Any:
    plain = [None, True, False, 0, -1, 3, 2.5, 1e300, 10**18, 10**9, "", "a", "é\n", "#", "x" * 50, [], {}]
    form = rng.randrange(4) if depth < 3 else 0
    if form < 2:
        return rng.choice(plain)
    if form == 2:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "type", "é"]): random_value(rng, depth + 1) for _ in range(rng.randrange(4))}


KEYWORDS = {
    "type": ["string", "integer", "number", "array", "object", "null", "boolean", ["string", "array"]],
    "format": ["date", "email", "uuid", "time", "ipv6", "hostname", "strange"],
    "pattern": ["^a+$", "b", "[ab]*a[ab]{9}", ".{1,300}", "(?!x)y", "("],
    "$ref": ["#", "#/properties/a", "#/$defs/a", "#/nowhere", "#/items"],
    "required": [["a"], ["a", "b"], [], ["zz"]],
    "enum": [[1, 2], ["a", "b"], [None, [], {}], WORDS[:40]],
}
COUNTS = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
]
NUMBERS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
ONE_SCHEMA = [
    "not",
    "if",
    "then",
    "else",
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
]
SCHEMA_LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"]
SCHEMA_MAPS = ["properties", "patternProperties", "$defs", "dependentSchemas"]


def random_schema(rng: random.Random, depth: int = 0) -> Any:
    if rng.random() < 0.06:
        return random_value(rng)
    schema: dict[str, Any] = {}
    for _ in range(rng.randrange(1, 5)):
        keyword = rng.choice(
            [*KEYWORDS, *COUNTS, *NUMBERS, *ONE_SCHEMA, *SCHEMA_LISTS, *SCHEMA_MAPS, "const", "uniqueItems"]
        )
        if rng.random() < 0.04:
            schema[keyword] = random_value(rng)
        elif keyword in KEYWORDS:
            schema[keyword] = rng.choice(KEYWORDS[keyword])
        elif keyword in COUNTS:
            schema[keyword] = rng.choice([0, 1, 2, 5, 60, 3000, 10**9])
        elif keyword in NUMBERS:
            schema[keyword] = rng.choice([-5, 0, 1, 0.1, 7, 1e9, 12345.678, 10**25])
        elif keyword == "const":
            schema[keyword] = random_value(rng)
        elif keyword == "uniqueItems":
            schema[keyword] = True
        elif depth < 4:
            schema[keyword] = random_inner(rng, keyword, depth + 1)
    return schema


def random_inner(rng: random.Random, keyword: str, depth: int) -> Any:
    if keyword in ONE_SCHEMA:
        return random_schema(rng, depth)
    if keyword in SCHEMA_LISTS:
        return [random_schema(rng, depth) for _ in range(rng.randrange(1, 5))]
    return {rng.choice(["a", "b", "^x", ".*", "é"]): random_schema(rng, depth) for _ in range(rng.randrange(1, 4))}


def mutated(rng: random.Random, text: str) -> str:
    """A text with some of its characters changed."""
    chars = list(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(chars) + 1)
        chars[at : at + rng.randrange(3)] = rng.choice(
            ['"', "{", "}", "[", "]", ",", "\\", "\x00", "9" * 30, "\ud800", ""]
        )
    return "".join(chars)


def random_rule(rng: random.Random, names: list[str], depth: int = 0) -> str:
    form = rng.randrange(7) if depth < 4 else 0
    if form < 2:
        texts = [
            '"a"',
            '""',
            '"é"',
            "/[a-c]+/",
            "/a*/",
            "/(ab)*b?/",
            '"a".."f"',
            "%json {}",
            "/a{2,300}/",
            "<[0-99]>",
            "<|x|>",
        ]
        return rng.choice([*texts, *names])
    inner = [random_rule(rng, names, depth + 1) for _ in range(2)]
    if form == 2:
        return f"({inner[0]}){rng.choice(['*', '+', '?', '{2}', '{1,40}', '{0,99999}'])}"
    return " | ".join(inner) if form == 3 else f"({inner[0]} | {inner[1]})" if form == 4 else " ".join(inner)


def random_grammar(rng: random.Random) -> str:
    names = ["start", "r1", "r2", "r3"]
    rules = [f"{name}{rng.choice(['', '', '[lazy]', '[max_tokens=3]'])}: {random_rule(rng, names)}" for name in names]
    return "\n".join(rules)


def random_spec(rng: random.Random) -> GrammarSpec:
    form = rng.random()
    if form < 0.1:
        return GrammarSpec("ebnf", random_grammar(rng))
    if form < 0.4:
        return GrammarSpec("regex", random_regex(rng))
    text = json.dumps(random_schema(rng), ensure_ascii=rng.random() < 0.5)
    if form < 0.5:
        text = mutated(rng, text)
    return GrammarSpec("json_schema", text, lenient=rng.random() < 0.3)
