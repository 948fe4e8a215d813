import subprocess
import sys
from pathlib import Path

import pytest

import sgl
from sgl.backends.launch import command_line

pytestmark = pytest.mark.timeout(60)

# A package that stands in for the runtime: `python -m sgl_runtime serve` is a server of a scripted model, or fails.
SERVER = """
import sys
sys.path.insert(0, {folder!r})
arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "serve", sys.argv
if arguments["--model-path"] == "missing":
    sys.exit("model path 'missing' does not exist")
import sgl
from protocol_server import ProtocolHandler
from http.server import ThreadingHTTPServer
server = ThreadingHTTPServer((arguments["--host"], int(arguments["--port"])), ProtocolHandler)
server.model, server.headers_seen, server.breaks_off = sgl.ScriptedBackend("hello").model, [], False
server.serve_forever()
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path, monkeypatch):
    package = tmp_path / "sgl_runtime"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(SERVER.format(folder=str(Path(__file__).parent)))
    lang = Path(sgl.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{lang}")


@sgl.function
def greeting(s):
    s += "Say: " + sgl.gen("x")


def test_a_runtime_is_a_backend_from_start_to_shutdown():
    with sgl.Runtime(model_path="tiny", context_length=64) as runtime:
        assert greeting.run(backend=runtime)["x"] == "hello"
        sgl.set_default_backend(runtime)
        assert greeting()["x"] == "hello"
        url = runtime.url
    with pytest.raises(sgl.BackendError, match="no server at"):
        sgl.RuntimeEndpoint(url)
    runtime.shutdown()


def test_a_server_that_ends_says_why():
    with pytest.raises(sgl.BackendError, match="exit code 1\nmodel path 'missing' does not exist"):
        sgl.Runtime(model_path="missing")


def test_options_become_flags():
    options = {"model_path": "m", "disable_radix_cache": True, "dtype": None, "trust": False, "port": 5}
    assert command_line(options) == ["--model-path", "m", "--disable-radix-cache", "--port", "5"]
    with pytest.raises(sgl.ArgumentError, match="model_path"):
        sgl.Runtime()


def test_a_program_that_ends_stops_its_server(tmp_path):
    script = tmp_path / "ending.py"
    script.write_text("import sgl\nprint(sgl.Runtime(model_path='tiny').url)\n")
    output = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=40, check=True)
    with pytest.raises(sgl.BackendError, match="no server at"):
        sgl.RuntimeEndpoint(output.stdout.strip())
