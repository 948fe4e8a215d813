import subprocess
import sys

CLOSED_AT_EXIT = """
import atexit

from sgl_runtime.config import GrammarConfig
from sgl_runtime.server.grammar_checker import GrammarChecker
from sgl_runtime.serving.background_loop import BackgroundLoop


async def build():
    return GrammarChecker(GrammarConfig())


loop = BackgroundLoop("checks")
checker = loop.result(build())
atexit.register(lambda: loop.result(checker.close()))
"""


def test_a_checker_can_be_closed_while_python_exits():
    ended = subprocess.run([sys.executable, "-c", CLOSED_AT_EXIT], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
