"""How log lines look: time, level, process title, logger, then the message in key=value form; or JSON objects."""

import logging
import sys
import time

import msgspec

from sgl_runtime.config_serving import LogConfig

# Libraries that say too much at the level that was chosen for us.
_QUIET_LOGGERS = ("httpx", "httpcore", "urllib3", "filelock", "asyncio", "opentelemetry")

HTTP_LOGGER = "sgl_runtime.server.http_log"
"""Writes the lines of HTTP requests, at a level of its own."""


def configure_logging(config: LogConfig, *, process_title: str) -> None:
    """Send log lines to stderr.

    Args:
        config: The section.
        process_title: Stands in every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    if config.log_format == "json":
        handler.setFormatter(JsonFormatter(process_title))
    else:
        handler.setFormatter(
            logging.Formatter(f"%(asctime)s %(levelname)s process={process_title} logger=%(name)s %(message)s")
        )
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler], force=True)
    # Warnings of Python's own go the same way, so that every line has the one form.
    logging.captureWarnings(config.log_format == "json")
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # It warns of whatever a client sends that is no HTTP: anybody could fill the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger(HTTP_LOGGER).setLevel(config.log_level_http.upper())


class JsonFormatter(logging.Formatter):
    """One JSON object for each line: time, level, process, logger, message, and the traceback where there is one.

    Args:
        process_title: The value of `process`.
    """

    def __init__(self, process_title: str) -> None:
        super().__init__()
        self._process_title = process_title

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "process": self._process_title,
            "logger": record.name,
            "message": _encodable(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = _encodable(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def _encodable(text: str) -> str:
    """The text with what has no UTF-8 form written out."""
    return text.encode(errors="backslashreplace").decode()
