"""One engine for the tests that run example programs in this process."""

from collections.abc import Iterator
from typing import Any

import pytest

import sgl


@pytest.fixture(scope="session")
def example_engine() -> Iterator[Any]:
    with sgl.Engine(model_path="smollm2", max_total_tokens=16_384) as engine:
        yield engine


@pytest.fixture
def backend(example_engine: Any) -> Any:
    """The engine, as the default backend."""
    sgl.set_default_backend(example_engine)
    return example_engine
