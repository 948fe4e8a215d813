"""From the text of a JSON Schema to the automaton of its instances."""

import json
import math
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton import ByteAutomaton
from sgl_runtime.grammar.base import RelaxedKeyword
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.builder import AutomatonBuilder
from sgl_runtime.grammar.json_schema.formula import Formulas
from sgl_runtime.grammar.json_schema.layout import Layout
from sgl_runtime.grammar.json_schema.policy import Whitespace
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.relaxing import LenientSchema
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.schema_node import UnsupportedKeywordError
from sgl_runtime.grammar.json_schema.value_graph import ValueGraph

_ROOT_LEVEL = 3


@dataclass(frozen=True)
class JsonPolicy:
    """How output is spelled.

    Attributes:
        whitespace: Where white space may stand.
        is_open: Whether objects that list properties and say nothing about others may have others.
        any_order: Whether properties may come in any order.
    """

    whitespace: Whitespace = "single_space"
    is_open: bool = False
    any_order: bool = False


class SchemaFrontEnd:
    """Compiles JSON Schemas.

    Args:
        policy: How output is spelled.
        scalars: Automata of strings and numbers, shared by all schemas.
    """

    def __init__(self, policy: JsonPolicy, scalars: Scalars) -> None:
        self._policy = policy
        self._scalars = scalars

    def compile(self, text: str, budget: Budget) -> ByteAutomaton:
        """The automaton of a schema, given as JSON text.

        Raises:
            GrammarError: the text is malformed, or a keyword is malformed or not supported (the message names its
                place); or no value satisfies the schema.
        """
        return self._compile(parse_schema(text), budget)

    def compile_lenient(self, text: str, budget: Budget) -> tuple[ByteAutomaton, tuple[RelaxedKeyword, ...]]:
        """The automaton of a schema without the keywords that cannot be enforced, and which those are.

        Raises:
            GrammarError: as for `compile`, but for keywords that are not supported.
        """
        schema = LenientSchema(parse_schema(text))
        while True:
            budget.spend()
            try:
                return self._compile(schema.value, budget), tuple(schema.relaxed)
            except UnsupportedKeywordError as error:
                schema.take_out(error.pointer, error.reason)

    def _compile(self, schema: Any, budget: Budget) -> ByteAutomaton:
        builder = AutomatonBuilder(budget)
        end = builder.new_state()
        builder.accept(end)
        builder.merge(0, self.write_value(schema, builder, end, budget), level=_ROOT_LEVEL)
        return builder.build()

    def write_value(
        self, schema: Any, builder: AutomatonBuilder, behind: int, budget: Budget, *, place: str = "json_schema"
    ) -> int:
        """Write the instances of a schema in front of a state; returns the state where they begin.

        Args:
            schema: The schema, parsed.
            builder: Gets the states.
            behind: The state behind an instance.
            budget: Limits the work.
            place: What messages call the schema.

        Raises:
            GrammarError: a keyword is malformed or not supported; or no value satisfies the schema.
        """
        reader = SchemaReader(schema, Formulas(), budget, is_open=self._policy.is_open)
        value = reader.read_root()
        graph = ValueGraph(reader, self._scalars, budget, any_order=self._policy.any_order)
        question = graph.questions.satisfies(value)
        if not graph.explore(question):
            raise GrammarError(f"no output at all satisfies this {place}")
        layout = Layout(builder, graph, self._scalars, budget, whitespace=self._policy.whitespace)
        start = layout.value(question, (behind,))
        layout.finish()
        return start


def parse_schema(text: str) -> Any:
    """Read a schema.

    Raises:
        GrammarError: it is not JSON.
    """

    def refuse_constant(name: str) -> None:
        raise GrammarError(f"json_schema: {name} is no JSON number")

    def read_float(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise GrammarError(f"json_schema: {digits} is too large for a number")
        return value

    try:
        return json.loads(text, parse_constant=refuse_constant, parse_float=read_float)
    except json.JSONDecodeError as error:
        raise GrammarError(
            f"json_schema is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except ValueError as error:
        # An integer of more digits than Python reads.
        raise GrammarError(f"json_schema: {error}") from None
