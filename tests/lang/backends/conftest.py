import importlib.util
from pathlib import Path

import pytest


@pytest.fixture
def protocol_server():
    """`protocol_server(model)`: a context manager that serves a scripted model over HTTP."""
    spec = importlib.util.spec_from_file_location("protocol_server", Path(__file__).with_name("protocol_server.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.protocol_server
