"""`sgl serve` in processes of its own."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil

TESTS = Path(__file__).resolve().parents[1]

SCRIPTED = "fakes.scripted_serve"
REAL = "sgl_runtime serve"


class ServerProcess:
    """A server in processes of its own; its log is read line by line."""

    def __init__(
        self, *flags: str, model_path: str = "scripted", port: int | None = None, main: str = SCRIPTED
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
        command = [sys.executable, "-m", *main.split(), "--model-path", model_path, "--port", str(self.port)]
        self.process = subprocess.Popen([*command, *flags], env=environment, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def wait_for_line(self, text: str) -> str:
        with self._changed:
            found = self._changed.wait_for(lambda: text in self.log or self.process.poll() is not None, 60)
        assert found, self.log
        assert text in self.log, self.log
        return next(line for line in self.lines if text in line)

    def children(self) -> dict[str, psutil.Process]:
        """Child processes by title."""
        children = {child.cmdline()[0]: child for child in psutil.Process(self.process.pid).children()}
        return {title: child for title, child in children.items() if title.startswith("sgl::")}

    def wait_ended(self) -> int:
        code = self.process.wait(20)
        self._reader.join(20)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.wait_ended()
        assert self.process.stderr is not None
        self.process.stderr.close()
        assert "idle check failed" not in self.log, self.log

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
