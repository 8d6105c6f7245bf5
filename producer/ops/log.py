"""The log of the process on stderr: key and value, as text for people or one JSON object a line for machines."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import orjson
import structlog

Format = Literal["auto", "json", "text"]


def configure(form: Format = "auto", level: str = "info") -> None:
    """Set up logging of this process. ``auto`` is text on a terminal and JSON elsewhere."""
    people = form == "text" or (form == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if people:
        renderers: list[Any] = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    else:
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    # Libraries that log by the standard module are only of interest when they complain.
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s", force=True
    )


def _json(event: dict[str, Any], **_: Any) -> str:
    return orjson.dumps(event, default=str).decode()
