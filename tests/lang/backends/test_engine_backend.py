import subprocess
import sys

import pytest

import sgl
from sgl_runtime.errors import GrammarError

pytestmark = pytest.mark.timeout(30)


class Engine:
    """An engine of this process, as far as the language sees it."""

    def __init__(self, *, fails=False):
        self.script = sgl.ScriptedBackend("blue.").model
        self.fails = fails

    async def call(self, path, payload):
        if self.fails and path == "/generate":
            raise GrammarError("cannot enforce it", param="sampling_params.regex")
        return await self.script.call(path, payload)

    async def stream(self, path, payload):
        if self.fails:
            raise GrammarError("cannot enforce it", param="sampling_params.regex")
        async for event in self.script.stream(path, payload):
            yield event


@sgl.function
def color(s):
    s += "The sky is " + sgl.gen("x", stop=".")


def test_an_engine_is_a_backend_as_it_stands():
    assert color.run(backend=Engine()).text() == "The sky is blue"
    assert "".join(color.run(backend=Engine(), stream=True).text_iter()) == "The sky is blue"
    sgl.set_default_backend(Engine())
    assert color.run_batch([(), ()])[1]["x"] == "blue"


@pytest.mark.parametrize("stream", [False, True])
def test_its_errors_are_those_that_a_client_of_a_server_sees(stream):
    state = color.run(backend=Engine(fails=True), stream=stream)
    with pytest.raises(sgl.ProgramError, match="cannot enforce it") as caught:
        state["x"]
    cause = caught.value.__cause__
    assert isinstance(cause, sgl.BackendError)
    assert (cause.status, cause.code, cause.param) == (400, "bad_grammar", "sampling_params.regex")
    assert isinstance(cause.__cause__, GrammarError)


def test_importing_the_language_loads_no_runtime():
    heavy = ("torch", "sgl_runtime", "transformers", "numpy", "pydantic")
    code = f"import sys, sgl; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout == "[]\n"


def test_a_program_that_leaves_generation_running_ends(tmp_path):
    script = tmp_path / "leaving.py"
    script.write_text(
        "import sgl\n"
        "from sgl.backends.scripted import Gate\n"
        "gate = Gate()\n"
        "@sgl.function\n"
        "def leaving(s):\n"
        "    s += 'p' + sgl.gen('x')\n"
        "state = leaving.run(backend=sgl.ScriptedBackend('x', before=lambda call: gate))\n"
        "print('end of the script')\n"
    )
    output = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=20, check=True
    )
    assert (output.stdout, output.stderr) == ("end of the script\n", "")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        sgl.Unknown  # noqa: B018 - reading it is the test
