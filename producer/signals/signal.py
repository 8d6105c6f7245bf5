"""What a signal asks for: Debezium's types and their data, read from JSON, each fault with the value that has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tailrace.producer.config.filters import InvalidExpressionError, compile_expression


class InvalidSignalError(ValueError):
    """A signal that cannot be followed; the text says why."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal as it came: ``data`` is the object that stands there, {} for none."""

    id: str
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Read tables again. ``conditions`` pair a table's expression with the SQL that its rows must meet."""

    tables: tuple[re.Pattern[str], ...]
    conditions: tuple[tuple[re.Pattern[str], str], ...] = ()
    blocking: bool = False
    surrogate: str = ""

    def condition(self, table: str) -> str:
        """Return the SQL for a table; empty: all rows."""
        return next((sql for expression, sql in self.conditions if expression.fullmatch(table)), "")


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Stop reading tables; None: all of them."""

    tables: tuple[re.Pattern[str], ...] | None


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """Hand out no more splits."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """Go on after a pause."""


@dataclass(frozen=True, slots=True)
class LogSignal:
    """Write a line to the log."""

    message: str


SignalAction = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogSignal


def from_json(text: bytes | str) -> Signal:
    """Read ``{"id": …, "type": …, "data": {…}}``, as it stands in the topic and in the file."""
    body = _object(text, "a signal")
    return Signal(_text(body, "id", default=""), _text(body, "type"), _data(body.get("data")))


def from_row(values: Sequence[Any]) -> Signal:
    """Read a row of the signal table: id, type and data, in this order whatever their names."""
    if len(values) != 3:
        raise InvalidSignalError(f"the signal table has {len(values)} columns, not 3: id, type, data")
    ident, kind, data = values
    if not isinstance(kind, str):
        raise InvalidSignalError(f"the type is {kind!r}, not a text")
    return Signal(str(ident), kind, _data(data))


def parse_action(signal: Signal) -> SignalAction:
    """Return what a signal asks for. Raises SignalFault."""
    data = signal.data
    match signal.type:
        case "execute-snapshot":
            return _execute(data)
        case "stop-snapshot":
            if _kind(data) == "blocking":
                raise InvalidSignalError('type "BLOCKING" cannot be stopped; give "INCREMENTAL"')
            return StopSnapshot(_expressions(data) if data.get("data-collections") else None)
        case "pause-snapshot":
            return PauseSnapshot()
        case "resume-snapshot":
            return ResumeSnapshot()
        case "log":
            return LogSignal(_text(data, "message"))
        case "schema-changes" | "set-binlog-position" | "snapshot-window-open" | "snapshot-window-close":
            raise InvalidSignalError(f"signals of type {signal.type!r} are not supported")
    raise InvalidSignalError(
        f"type {signal.type!r} is not known; it may be execute-snapshot, stop-snapshot, pause-snapshot, "
        "resume-snapshot or log"
    )


def _execute(data: Mapping[str, Any]) -> ExecuteSnapshot:
    if not data.get("data-collections"):
        raise InvalidSignalError("data-collections is missing or empty: name the tables as db.table")
    conditions = []
    for entry in data.get("additional-conditions") or ():
        if not isinstance(entry, dict):
            raise InvalidSignalError(
                f"additional-conditions: {entry!r} is not an object with data-collection and filter"
            )
        conditions.append((_expression(_text(entry, "data-collection")), _text(entry, "filter")))
    blocking = _kind(data) == "blocking"
    if blocking and conditions:
        raise InvalidSignalError(
            "a blocking snapshot with additional-conditions is not supported, since its filters are whole SELECT "
            'statements; use type "INCREMENTAL", whose filters are conditions'
        )
    return ExecuteSnapshot(_expressions(data), tuple(conditions), blocking, _text(data, "surrogate-key", default=""))


def _kind(data: Mapping[str, Any]) -> str:
    kind = _text(data, "type", default="incremental").lower()
    if kind not in {"incremental", "blocking"}:
        raise InvalidSignalError(f"type {kind!r} is neither INCREMENTAL nor BLOCKING")
    return kind


def _expressions(data: Mapping[str, Any]) -> tuple[re.Pattern[str], ...]:
    given = data["data-collections"]
    if not isinstance(given, list) or not all(isinstance(text, str) and text.strip() for text in given):
        raise InvalidSignalError(f"data-collections: {given!r} is not a list of texts")
    return tuple(_expression(text.strip()) for text in given)


def _expression(text: str) -> re.Pattern[str]:
    try:
        return compile_expression(text)
    except InvalidExpressionError as error:
        raise InvalidSignalError(f"data-collections: {error}") from None


def _data(given: Any) -> Mapping[str, Any]:
    if given is None or given == "":
        return {}
    if isinstance(given, dict):
        return given
    if isinstance(given, (str, bytes)):
        return _object(given, "data")
    raise InvalidSignalError(f"data is {given!r}, not an object")


def _object(text: bytes | str, what: str) -> dict[str, Any]:
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidSignalError(f"{what} is not JSON ({error}): {text[:200]!r}") from None
    if not isinstance(body, dict):
        raise InvalidSignalError(f"{what} is not a JSON object: {text[:200]!r}")
    return body


def _text(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value.strip() and default is None):
        raise InvalidSignalError(f"{name} is {'missing' if value is None else repr(value) + ', not a text'}")
    return value
