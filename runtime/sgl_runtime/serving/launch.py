"""`sgl serve`: starts the processes of the server, and ends them together."""

import errno
import logging
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from setproctitle import setproctitle

from sgl_runtime.config import RuntimeConfig, ServerConfig
from sgl_runtime.config_flags import parse_flags
from sgl_runtime.errors import ConfigError, SglRuntimeError
from sgl_runtime.ipc.channels import Addresses
from sgl_runtime.logs import configure_logging
from sgl_runtime.serving.factories import Factories
from sgl_runtime.serving.process_group import ProcessGroup
from sgl_runtime.serving.processes import API_TITLE, ApiProcess, ProcessPlan, detokenizer_main, scheduler_main

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """The command `sgl serve`.

    Args:
        arguments: What follows the command's name.

    Returns:
        Exit code: 0 after a signal, 1 when the server could not start or a process died, 2 for wrong flags.
    """
    return serve(parse_flags("sgl serve", arguments), Factories())


def serve(config: RuntimeConfig, factories: Factories) -> int:
    """Serve until a signal comes; the exit code.

    Args:
        config: All sections.
        factories: How the model's parts are built.
    """
    setproctitle(API_TITLE)
    configure_logging(config.server.log_level, process_title=API_TITLE)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        # The port comes first: it is wrong more often than the weights, and known at once.
        with _listener(config.server) as listener, tempfile.TemporaryDirectory(prefix="sgl-") as folder:
            plan = ProcessPlan(config, factories, Addresses.in_folder(Path(folder)))
            return _run(plan, listener)
    except SglRuntimeError as error:
        print(f"sgl serve: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def _run(plan: ProcessPlan, listener: socket.socket) -> int:
    begin = time.monotonic()
    group = ProcessGroup()
    try:
        group.start("scheduler", scheduler_main, plan)
        # The tokenizer loads here while the weights load there.
        host = plan.factories.build_host(plan.config)
        logger.info("tokenizer ready seconds=%.2f", time.monotonic() - begin)
        group.start("detokenizer", detokenizer_main, plan, host.tokenizer.vocabulary)
        facts = group.wait_ready()["scheduler"]
        _listen(listener, plan.config.server)
        death = ApiProcess(plan, host, facts, group).run(listener)
    finally:
        group.stop()
    logger.info("ended")
    return 0 if death is None else 1


@contextmanager
def _listener(config: ServerConfig) -> Iterator[socket.socket]:
    """A socket bound to the address of the server.

    Raises:
        ConfigError: the address is not there, or taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"host {config.host!r} is no address of this machine: {error.strerror}") from error
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise _cannot_listen(config, error) from error
        yield listener


def _listen(listener: socket.socket, config: ServerConfig) -> None:
    """Let connections come; only now, so that whoever waits for the port waits for the model.

    Raises:
        ConfigError: another program took the same port while the model was loaded.
    """
    try:
        listener.listen()
    except OSError as error:
        raise _cannot_listen(config, error) from error


def _cannot_listen(config: ServerConfig, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"port {config.port} on {config.host} is in use; choose another with --port")
    return ConfigError(f"cannot listen on {config.host} port {config.port}: {error.strerror}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
