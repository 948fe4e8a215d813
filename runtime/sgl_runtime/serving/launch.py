"""`sgl serve`: starts the processes of the server, and ends them together."""

import logging
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from setproctitle import setproctitle

from sgl_runtime.config_values import resolve_queue
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.ipc.channels import Addresses
from sgl_runtime.logs import configure_logging
from sgl_runtime.server.tls import tls_context
from sgl_runtime.serving.factories import Factories
from sgl_runtime.serving.listener import allow_connections, listen, listener
from sgl_runtime.serving.process_group import ProcessGroup
from sgl_runtime.serving.processes import API_TITLE, ApiProcess, ProcessPlan, detokenizer_main, scheduler_main
from sgl_runtime.start_options import StartOptions, parse_options

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """The command `sgl serve`.

    Args:
        arguments: What follows the command's name.

    Returns:
        Exit code: 0 after a signal, 1 when the server could not start or a process died, 2 for wrong flags.
    """
    return serve(parse_options("sgl serve", arguments), Factories())


def serve(options: StartOptions, factories: Factories) -> int:
    """Serve until a signal comes; the exit code.

    Args:
        options: The configuration, and where it came from.
        factories: How the model's parts are built.
    """
    if options.print_config:
        print(options.as_toml())
        return 0
    config = replace(options.config, scheduler=resolve_queue(options.config.scheduler))
    setproctitle(API_TITLE)
    configure_logging(config.logs, process_title=API_TITLE)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        tls = tls_context(config.access)
        allow_connections(config.connections.max_connections)
        # The port comes first: it is wrong more often than the weights, and known at once.
        with listener(config) as bound, tempfile.TemporaryDirectory(prefix="sgl-") as folder:
            sockets = Path(folder)
            leftovers = [sockets, *([] if config.connections.uds is None else [Path(config.connections.uds)])]
            plan = ProcessPlan(config, factories, Addresses.in_folder(sockets), tuple(leftovers))
            return _run(plan, options, bound, tls)
    except SglRuntimeError as error:
        print(f"sgl serve: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def _run(plan: ProcessPlan, options: StartOptions, bound: socket.socket, tls: ssl.SSLContext | None) -> int:
    begin = time.monotonic()
    group = ProcessGroup()
    try:
        group.start("scheduler", scheduler_main, plan)
        # The tokenizer loads here while the weights load there.
        host = plan.factories.build_host(plan.config)
        vocabulary = host.tokenizer.vocabulary
        logger.info("tokenizer ready seconds=%.2f", time.monotonic() - begin)
        _tell_options(options)
        group.start("detokenizer", detokenizer_main, plan, vocabulary)
        facts = group.wait_ready()["scheduler"]
        listen(bound, plan.config)
        death = ApiProcess(plan, host, facts, group).run(bound, tls)
    finally:
        group.stop()
    logger.info("ended")
    return 0 if death is None else 1


def _tell_options(options: StartOptions) -> None:
    """Say how the configuration differs from the defaults; only now, as a start that fails says one sentence."""
    for line in options.differences():
        logger.info("option %s", line)
    for note in options.notes:
        logger.warning("option %s", note)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
