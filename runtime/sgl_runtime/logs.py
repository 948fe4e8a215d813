"""How log lines look: time, level, process title, logger, then the message in key=value form."""

import logging
import sys

# Libraries that say too much at the level that was chosen for us.
_QUIET_LOGGERS = ("uvicorn", "httpx", "httpcore", "urllib3", "filelock", "asyncio")


def configure_logging(level: str, *, process_title: str) -> None:
    """Send log lines to stderr.

    Args:
        level: debug, info, warning or error.
        process_title: Stands in every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s %(levelname)s process={process_title} logger=%(name)s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
