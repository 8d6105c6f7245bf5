"""The log of a process on stderr: events with keys and values, as text for people or as one JSON object a line.

An error as a value is an object in JSON: ``class``, ``message``, ``hint``, ``context``.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import orjson
import structlog

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.printable import printable, printable_lines

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


def configure_logging(format_: LogFormat = "auto", level: LogLevel = "info") -> None:
    """Set up the log of this process. ``auto`` is text on a terminal, and JSON elsewhere."""
    as_text = format_ == "text" or (format_ == "auto" and sys.stderr.isatty())
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_text:
        # The default shows the variables of each frame of a traceback: rows and passwords.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
        processors += [structlog.processors.format_exc_info, _escape, renderer]
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    # Libraries use the standard logging module; only their warnings matter here.
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s", force=True
    )


def is_json() -> bool:
    """Return whether the log of this process is set up, as JSON."""
    return isinstance(structlog.get_config()["processors"][-1], structlog.processors.JSONRenderer)


def _escape(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Escape line breaks and control characters of texts, which may come from other systems.

    Otherwise a text could look like another log line, or control the terminal. The lines of a traceback are indented.
    """
    texts = {name: str(value) for name, value in event.items() if isinstance(value, str | Exception)}
    return event | {name: (printable_lines if name == "exception" else printable)(text) for name, text in texts.items()}


def _json(event: dict[str, Any], **_: Any) -> str:
    # A log that cannot write a value, such as offsets by the number of a partition, would end what it tells of.
    return orjson.dumps(event, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()


def _plain(value: object) -> object:
    if isinstance(value, TailraceError):
        return value.fields() | {"context": {name: str(each) for name, each in value.context.items()}}
    return str(value)
