"""Sections of the configuration for whoever runs a server: access, connections, logs."""

from dataclasses import dataclass
from typing import Literal

from sgl_runtime.config_checks import check_positive, check_seconds
from sgl_runtime.errors import ConfigError

SECRET_FIELDS = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})
"""Fields whose values are shown nowhere."""

MAX_REQUEST_HISTORY = 100_000

LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class AccessConfig:
    """Who may use the server.

    Attributes:
        api_key: Key that requests must bring (Authorization: Bearer KEY, or x-api-key: KEY); several may be given.
        admin_api_key: Key of the paths that act on the server as a whole, in place of the api key there.
        api_key_for_probes: Ask for the key at /health, /ping, /ready and /metrics too.
        ssl_keyfile: File with the private key; turns TLS on.
        ssl_certfile: File with the certificate, and those that it is signed by.
        ssl_keyfile_password: Password of the private key.
        ssl_ca_certs: File with certificates; clients must then bring one that is signed by one of them.
        allowed_origins: Origins whose web pages may call the server (CORS); * for all.
        allowed_methods: HTTP methods that such pages may use.
        allowed_headers: Headers that such pages may send.
        allow_credentials: Let such pages send cookies and keys.
    """

    api_key: tuple[str, ...] = ()
    admin_api_key: str | None = None
    api_key_for_probes: bool = False
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile_password: str | None = None
    ssl_ca_certs: str | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    allow_credentials: bool = False

    def check(self) -> None:
        """See that the values make sense.

        Raises:
            ConfigError: one does not.
        """
        for name, keys in (("api_key", self.api_key), ("admin_api_key", (self.admin_api_key,))):
            for key in keys:
                if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
                    raise ConfigError(f"{name} holds a key that is empty or has other characters than visible ASCII")
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            given, missing = ("ssl_keyfile", "ssl_certfile")
            if self.ssl_keyfile is None:
                given, missing = missing, given
            raise ConfigError(f"{given} is given without {missing}; TLS needs both")
        for name, value in (
            ("ssl_keyfile_password", self.ssl_keyfile_password),
            ("ssl_ca_certs", self.ssl_ca_certs),
        ):
            if value is not None and self.ssl_keyfile is None:
                raise ConfigError(f"{name} is given without ssl_keyfile and ssl_certfile")
        if self.allow_credentials and "*" in self.allowed_origins:
            raise ConfigError("allowed_origins is *; with allow_credentials it must name the origins")


@dataclass(frozen=True, kw_only=True)
class ConnectionConfig:
    """Connections of clients, and what they may take.

    Attributes:
        uds: Path of a Unix socket to listen on instead of host and port.
        root_path: Prefix that a proxy in front of the server has taken off the paths.
        max_request_bytes: Most bytes in the body of a request; past it the answer is 413.
        max_connections: Most open connections; further ones are answered 503 and closed.
        read_timeout: Seconds in which the head of a request must come, and its body but for one second more for each 64
            KiB of it; past it the answer is 408.
        keep_alive_timeout: Seconds after which a connection without a request is closed.
        write_timeout: Seconds that a client may take no data of its reply before its connection is closed.
        shutdown_timeout: Seconds that running requests get to end after SIGTERM; new ones are answered 503 meanwhile.
            A second signal ends the server at once.
        watchdog_timeout: Seconds after which a pass counts as hung; the server then ends, with the stacks of the
            scheduler's threads in the log.
    """

    uds: str | None = None
    root_path: str = ""
    max_request_bytes: int = 64 * 1024 * 1024
    max_connections: int = 10_000
    read_timeout: float = 30.0
    keep_alive_timeout: float = 75.0
    write_timeout: float = 300.0
    shutdown_timeout: float = 25.0
    watchdog_timeout: float = 300.0

    def check(self) -> None:
        """See that the values make sense.

        Raises:
            ConfigError: one does not.
        """
        check_positive("max_request_bytes", self.max_request_bytes)
        check_positive("max_connections", self.max_connections)
        check_seconds("read_timeout", self.read_timeout)
        check_seconds("keep_alive_timeout", self.keep_alive_timeout)
        check_seconds("write_timeout", self.write_timeout)
        check_seconds("shutdown_timeout", self.shutdown_timeout, may_be_zero=True)
        check_seconds("watchdog_timeout", self.watchdog_timeout)
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(f"root_path is {self.root_path!r}; it must begin with / and not end with it")


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """What is written down of the server and of its requests.

    Attributes:
        log_level: Least severe lines that the log shows.
        log_level_http: The same for HTTP: info shows a line for each HTTP request, debug those of health checks too.
        log_format: Lines of text, or one JSON object a line.
        log_requests: Write log lines for each request, when it is received and when it has ended.
        log_requests_level: What these lines hold: 0 counts and times, 1 also sampling parameters, 2 also the beginning
            of prompt and output, 3 all of them.
        decode_log_interval: Decode passes between two log lines of the scheduler.
        dump_requests_folder: Folder to which requests and replies are written, for `sgl replay`.
        dump_requests_threshold: Requests in one file of that folder.
        request_history: Requests that are kept in memory for the web page's inspector; 0 keeps those alone that the
            page itself sent.
        crash_dump_folder: Folder to which the requests of the last five minutes are written when the server fails.
        otlp_traces_endpoint: URL to which OpenTelemetry traces are sent, as in http://localhost:4318/v1/traces.
    """

    log_level: LogLevel = "info"
    log_level_http: LogLevel = "warning"
    log_format: Literal["text", "json"] = "text"
    log_requests: bool = False
    log_requests_level: Literal[0, 1, 2, 3] = 0
    decode_log_interval: int = 40
    dump_requests_folder: str | None = None
    dump_requests_threshold: int = 1000
    request_history: int = 0
    crash_dump_folder: str | None = None
    otlp_traces_endpoint: str | None = None

    def check(self) -> None:
        """See that the values make sense.

        Raises:
            ConfigError: one does not.
        """
        check_positive("decode_log_interval", self.decode_log_interval)
        check_positive("dump_requests_threshold", self.dump_requests_threshold)
        if not 0 <= self.request_history <= MAX_REQUEST_HISTORY:
            raise ConfigError(f"request_history is {self.request_history}; it must be from 0 to {MAX_REQUEST_HISTORY}")
        endpoint = self.otlp_traces_endpoint
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"otlp_traces_endpoint is {endpoint!r}; it must be an http:// or https:// URL")
