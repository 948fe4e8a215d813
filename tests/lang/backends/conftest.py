import importlib.util
from pathlib import Path

import pytest


def load_beside(name):
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def protocol_server():
    """`protocol_server(model)`: a context manager that serves a scripted model over HTTP."""
    return load_beside("protocol_server").protocol_server


@pytest.fixture
def openai_stub():
    """`openai_stub(answer)`: a context manager that serves answers in the form of OpenAI's API."""
    return load_beside("openai_stub").openai_stub
