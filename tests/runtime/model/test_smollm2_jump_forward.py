"""Text that a grammar forces is appended at once; the small model writes the same without that."""

import json

import pytest

from sgl_runtime.config import GrammarConfig

pytestmark = pytest.mark.model

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name_of_the_city": {"type": "string", "maxLength": 12},
            "number_of_people": {"type": "integer", "minimum": 0, "maximum": 9999},
            "is_a_capital": {"type": "boolean"},
        },
        "required": ["name_of_the_city", "number_of_people", "is_a_capital"],
    }
)
PROMPTS = ["A city in France, as JSON:\n", "Une ville — 日本語 — als JSON:\n", "{}\n", "Write JSON. "]


@pytest.mark.slow
def test_the_output_is_the_same_with_and_without(driver, driver_for):
    plain = driver_for(grammar=GrammarConfig(disable_jump_forward=True))
    outcomes = []
    for each in (driver, plain):
        settings = [
            {"json_schema": SCHEMA, "temperature": temperature, "sampling_seed": seed, "max_new_tokens": 60}
            for seed, temperature in enumerate((0.0, 0.0, 1.0, 0.7))
        ]
        requests = [each.request(prompt, **options) for prompt, options in zip(PROMPTS, settings, strict=True)]
        outcomes.append(each.run(requests))
    for jumped, drawn in zip(*outcomes, strict=True):
        assert jumped.ids == drawn.ids
        assert jumped.last.forced_tokens > 15
        assert drawn.last.forced_tokens == 0
        token_bytes = driver.host.tokenizer.vocabulary.token_bytes
        text = b"".join(token_bytes[token] for token in jumped.ids).decode()
        assert set(json.loads(text)) == {"name_of_the_city", "number_of_people", "is_a_capital"}
