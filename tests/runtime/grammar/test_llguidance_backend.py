"""The llguidance backend: what it allows, where it ends, and that nothing in it hangs or crashes."""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec, GrammarState, GrammarVocabulary
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler

BYTES = GrammarVocabulary(
    (b"</s>", *(bytes([byte]) for byte in range(256)), b"ab", b"aab", b"", None, b"<e>"), frozenset({0, 261}), 300
)

JSON_GBNF = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws  # escapes too
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
LARK = 'start: "<" NAME ">" start? "</" NAME ">"\nNAME: /[a-z]+/\n'

Compile = Callable[..., GrammarState]


@pytest.fixture(scope="module")
def compilers() -> Iterator[dict[str, GrammarCompiler]]:
    made = {
        backend: GrammarCompiler(BYTES, GrammarConfig(grammar_backend=backend)) for backend in ("auto", "llguidance")
    }
    yield made
    for compiler in made.values():
        compiler.close()


@pytest.fixture(scope="module")
def compiled(compilers: dict[str, GrammarCompiler]) -> Compile:
    def compile_spec(kind: str, text: str, backend: str = "llguidance") -> GrammarState:
        return compilers[backend].compile(GrammarSpec(kind, text)).new_state()

    return compile_spec


def allowed(state: GrammarState) -> list[int]:
    row = np.full(BYTES.num_mask_words, -1, dtype=np.int32)
    state.fill_mask(row)
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


def accepts(state: GrammarState, text: str) -> bool:
    return all(state.advance(byte + 1) for byte in text.encode()) and state.can_end()


def walk(state: GrammarState, num_steps: int) -> None:
    for _ in range(num_steps):
        assert 98 in allowed(state)
        assert state.advance(98)


@pytest.mark.parametrize("backend", ["auto", "llguidance"])
@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (JSON_GBNF, '{"a": [1, 2.5e3, "x\\n"]}', '{"a": 01}'),
        (JSON_GBNF, "{}", "[1]"),
        (LARK, "<a><b></c></d>", "<a></b"),
        ('root ::= "x" root "y" | "z"', "xxzyy", "xxzy"),
        (r'root ::= "\u00e9" [\u0041-\u0043]+', "éABC", "éD"),
        ('root ::= "a" . "c"', "a\nc", "ac"),
        (r"root ::= [\U0001F600-\U0001F64F]{2}", "😀😀", "😀"),
        ('start: /[0-9]+/ | "none"', "12", "1n"),
    ],
)
def test_grammars(compiled: Compile, backend: str, grammar: str, good: str, bad: str) -> None:
    assert accepts(compiled("ebnf", grammar, backend), good)
    assert not accepts(compiled("ebnf", grammar, backend), bad)


def test_the_end_is_allowed_exactly_where_the_output_is_complete(compiled: Compile) -> None:
    state = compiled("regex", "ab?|abc")
    assert allowed(state) == [98, 257]
    assert not state.can_end()
    assert not state.advance(0)
    assert state.advance(98)
    assert allowed(state) == [0, 99, 261]
    assert state.can_end()
    assert not state.must_end()
    assert state.advance(261)
    assert allowed(state) == [0, 99, 261]
    assert state.advance(99)
    assert not state.must_end()
    assert state.advance(100)
    assert state.must_end()
    assert allowed(state) == [0, 261]
    assert not state.advance(98)
    assert state.advance(0)


def test_a_refused_token_changes_nothing(compiled: Compile) -> None:
    state = compiled("regex", "ab?|abc")
    for token_id in (99, 259, 260, 258, 299, 1000, -1):
        assert not state.advance(token_id)
    assert allowed(state) == [98, 257]


def test_cursors_are_independent(compilers: dict[str, GrammarCompiler]) -> None:
    grammar = compilers["llguidance"].compile(GrammarSpec("choices", '["ab", "b\\n\\"]/"]'))
    first, second = grammar.new_state(), grammar.new_state()
    assert first.advance(257)
    assert first.must_end()
    assert allowed(second) == [98, 99, 257]
    assert accepts(second, 'b\n"]/')


def test_what_is_forced_is_not_narrowed_to_one_token(compiled: Compile) -> None:
    assert allowed(compiled("regex", "aab")) == [98, 258]


@pytest.mark.parametrize("grammar", ["start: <[259-261]> | <[98]>", "start: <[0]> | <[98]>", "start: <[^99]>"])
def test_a_grammar_cannot_name_tokens_that_no_output_may_hold(compiled: Compile, grammar: str) -> None:
    state = compiled("ebnf", grammar)
    tokens = allowed(state)
    assert 98 in tokens
    assert not {0, 259, 260, 261} & set(tokens)
    assert all(compiled("ebnf", grammar).advance(token) for token in tokens)


@pytest.mark.parametrize("eos_ids", [frozenset(), frozenset({400}), frozenset({256, 2, 9})])
def test_any_ids_may_end_an_output(eos_ids: frozenset[int]) -> None:
    vocabulary = GrammarVocabulary([bytes([byte]) for byte in range(256)] + [None], eos_ids, 257)
    compiler = GrammarCompiler(vocabulary, GrammarConfig(grammar_backend="llguidance"))
    state = compiler.compile(GrammarSpec("regex", "ab*")).new_state()
    row = np.zeros(vocabulary.num_mask_words, dtype=np.int32)
    assert state.advance(97)
    state.fill_mask(row)
    bits = set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())
    assert bits == {98} | {eos_id for eos_id in eos_ids if eos_id < 257}
    compiler.close()


@pytest.mark.parametrize(
    "grammar",
    [
        'start: AS "ab"\nAS: /a+/',
        '%llguidance {"no_forcing": false}\nstart: AS "ab"\nAS: /a+/',
        'start: AS "ab"\nAS: /a+/\n%llguidance {"no_forcing": false}',
        'root ::= as "ab"\nas ::= "a"+',
    ],
)
def test_text_that_is_forced_without_end_does_not_hang(compiled: Compile, grammar: str) -> None:
    walk(compiled("ebnf", grammar), 5)


def test_json_is_spelled_by_the_policy() -> None:
    schema = json.dumps({"properties": {"a": {"type": "array"}}, "required": ["a"], "x-guidance": {"lenient": True}})
    texts = {"compact": '{"a":[1,2]}', "single_space": '{"a": [1, 2]}', "flexible": '{\n "a":  [1,2]}'}
    for policy, text in texts.items():
        config = GrammarConfig(grammar_backend="llguidance", json_whitespace=policy)
        compiler = GrammarCompiler(BYTES, config)
        accepted = {
            each: accepts(compiler.compile(GrammarSpec("json_schema", schema)).new_state(), each)
            for each in texts.values()
        }
        assert accepted[text] or policy == "flexible"
        assert accepted[texts["compact"]] == (policy != "single_space")
        compiler.close()


def test_structural_tags(compiled: Compile) -> None:
    tag = {
        "structures": [
            {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
            {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": ""},
            {"begin": "[[", "schema": {"const": None}, "end": "]]"},
        ],
        "triggers": ["<f", "[["],
    }
    good = ["", "free text", "a <f=a>12</f> b", "<f=b>true", "<<f=a>1</f>[[null]]\n", "[ [", "<f=b>true<f=a>2</f>"]
    bad = ["<f", "a <f> b", "<f=a>x</f>", "<f=b>12", "[[null", "<f=a>12"]
    for backend in ("llguidance", "auto"):
        for text in good:
            assert accepts(compiled("structural_tag", json.dumps(tag), backend), text), (backend, text)
        for text in bad:
            assert not accepts(compiled("structural_tag", json.dumps(tag), backend), text), (backend, text)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("ebnf", "start: x", 'ebnf: llguidance: at 1(8): unknown name: "x"'),
        ("ebnf", "root ::= x", "Rule 'x' not found"),
        ("ebnf", 'root ::= "a', "Unexpected end of input"),
        ("ebnf", 'a ::= "a"', "No 'root' rule found"),
        ("ebnf", r'root ::= "\uD800"', "is no character"),
        ("ebnf", "start: /(/", "unclosed group"),
        ("ebnf", "start: <|end|>", "ebnf: llguidance: "),
        ("ebnf", "start: start", "no output at all satisfies this ebnf"),
        ("ebnf", "%%%", "lexer error"),
        ("ebnf", "root ::= " + "(" * 2000 + '"a"' + ")" * 2000, "nested too deep"),
        ("ebnf", "start: " + "(" * 2000 + '"a"' + ")" * 2000, "too deeply nested"),
        ("regex", "a(?=b)b", "only automata can enforce"),
        ("regex", "(", "position 0"),
        ("json_schema", '{"not": {}}', "Unimplemented keys"),
        ("json_schema", '{"type": "strange"}', "strange"),
        ("json_schema", "{", "is not JSON"),
        ("json_schema", "false", "json_schema: "),
        ("json_schema", "3", "a schema is an object or a boolean"),
        ("structural_tag", "{}", "'structures'"),
        ("choices", "[]", "non-empty"),
    ],
)
def test_errors_are_one_clear_line(compiled: Compile, kind: str, text: str, message: str) -> None:
    with pytest.raises(GrammarError) as caught:
        compiled(kind, text)
    assert message in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 450


def test_a_long_chain_of_rules_ends_its_own_request(compilers: dict[str, GrammarCompiler]) -> None:
    chain = "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(40_000)) + '\nr40000: "a"'
    assert "SIGSEGV" in str(compilers["auto"].submit(GrammarSpec("ebnf", chain)).exception())
    long = "start: " + " | ".join(f'"word{n} "' for n in range(1900))
    assert accepts(compilers["auto"].compile(GrammarSpec("ebnf", long)).new_state(), "word1899 ")


def test_work_past_a_limit_ends_the_request_and_not_the_server(compiled: Compile) -> None:
    state = compiled("ebnf", f"start: e\ne: {'e ' * 200} | /[a-z]/ |")
    with pytest.raises(GrammarError, match=r"ebnf: llguidance: .*max is 2000"):
        walk(state, 100)
    with pytest.raises(GrammarError, match="ebnf: llguidance: "):
        allowed(state)
    assert not state.must_end()


def test_auto_gives_what_is_too_large_to_llguidance() -> None:
    config = GrammarConfig(max_grammar_states=500)
    compiler = GrammarCompiler(BYTES, config)
    large = compiler.submit(GrammarSpec("regex", "[ab]*a[ab]{20}")).result()
    assert large.enforced.backend == "llguidance"
    assert accepts(large.grammar.new_state(), "ab" + "b" * 19)
    assert not accepts(large.grammar.new_state(), "b" * 30)
    assert compiler.submit(GrammarSpec("regex", "[ab]*a[ab]{4}")).result().enforced.backend == "fsm"
    with pytest.raises(GrammarError, match="at most 500 are allowed"):
        compiler.compile(GrammarSpec("regex", "(?=[ab]*a[ab]{20}).*"))
    with pytest.raises(GrammarError, match="--grammar-backend llguidance"):
        compiler.compile(GrammarSpec("json_schema", '{"maxLength": 100000, "minLength": 90000, "type": "string"}'))
    compiler.close()
