"""The socket that a server listens on: a TCP port, or a Unix socket."""

import errno
import logging
import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from sgl_runtime.config import RuntimeConfig, ServerConfig
from sgl_runtime.errors import ConfigError

logger = logging.getLogger(__name__)

# Descriptors of the API process besides those of connections.
_SPARE_DESCRIPTORS = 256
# When a connection over which nothing comes is asked whether its client is still there.
_SILENT_S = 120


@contextmanager
def listener(config: RuntimeConfig) -> Iterator[socket.socket]:
    """A socket bound to the address of the server; it does not listen yet.

    Raises:
        ConfigError: the address is not there, or taken.
    """
    if config.connections.uds is None:
        with _tcp_listener(config.server) as bound:
            yield bound
    else:
        with _unix_listener(config.connections.uds) as bound:
            yield bound


def listen(bound: socket.socket, config: RuntimeConfig) -> None:
    """Let connections come; only now, so that whoever waits for the port waits for the model.

    Raises:
        ConfigError: another program took the same port while the model was loaded.
    """
    try:
        bound.listen(min(config.connections.max_connections, 2048))
    except OSError as error:
        raise _cannot_listen(config.server, error) from error


def allow_connections(max_connections: int) -> None:
    """Raise this process's limit on open files to what that many connections need, as far as the system lets it."""
    needed = max_connections + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        logger.warning(
            "max_connections=%d needs %d open files, and the system allows %d; raise its limit (ulimit -n)",
            max_connections,
            needed,
            allowed,
        )


@contextmanager
def _tcp_listener(config: ServerConfig) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"host {config.host!r} is no address of this machine: {error.strerror}") from error
    with socket.socket(family, kind, protocol) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these: a client whose machine is gone says nothing more, and would be held for ever.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_S)
        try:
            bound.bind(address)
        except OSError as error:
            raise _cannot_listen(config, error) from error
        yield bound


@contextmanager
def _unix_listener(path: str) -> Iterator[socket.socket]:
    _remove_dead_socket(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            bound.bind(path)
        except OSError as error:
            raise ConfigError(f"uds is {path!r}, on which nothing can listen: {error.strerror or error}") from error
        own = os.stat(path).st_ino
        try:
            yield bound
        finally:
            if os.path.exists(path) and os.stat(path).st_ino == own:
                os.unlink(path)


def _remove_dead_socket(path: str) -> None:
    """Delete what a server that was killed left behind.

    Raises:
        ConfigError: something else is there, or a server that lives.
    """
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise ConfigError(f"uds is {path!r}, which is there and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise ConfigError(f"uds is {path!r}, which is in use: {error.strerror or error}") from error
    raise ConfigError(f"uds is {path!r}, on which another server listens")


def _cannot_listen(config: ServerConfig, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"port {config.port} on {config.host} is in use; choose another with --port")
    return ConfigError(f"cannot listen on {config.host} port {config.port}: {error.strerror}")
