"""OutputSchema: the JSON Schema of what a model is to write, where pydantic's describes what it would accept."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


class OutputSchema(GenerateJsonSchema):
    """Pydantic's schemas, but for what has no single form."""

    def decimal_schema(self, schema: Any) -> JsonSchemaValue:
        """A number: pydantic accepts any string beside it, and then refuses most of them."""
        bounds = {keyword: float(schema[name]) for name, keyword in BOUNDS.items() if schema.get(name) is not None}
        return {"type": "number", **bounds}
