"""Debezium's signal types and their data, parsed from JSON. Errors include the invalid value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tailrace.producer.config.filters import InvalidExpressionError, compile_expression


class InvalidSignalError(ValueError):
    """An invalid signal; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A received signal; ``data`` is {} if it has none."""

    id: str
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Start an incremental snapshot. ``conditions``: an expression for tables, and an SQL condition on their rows."""

    tables: tuple[re.Pattern[str], ...]
    conditions: tuple[tuple[re.Pattern[str], str], ...] = ()
    blocking: bool = False
    surrogate_key: str = ""

    def condition(self, table: str) -> str:
        """Return the SQL condition on the rows of a table; empty: all rows."""
        return next((sql for expression, sql in self.conditions if expression.fullmatch(table)), "")


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Stop the incremental snapshot of tables; None: of all."""

    tables: tuple[re.Pattern[str], ...] | None


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """Assign no more splits."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """Continue after a pause."""


@dataclass(frozen=True, slots=True)
class LogSignal:
    """Write a message to the log."""

    message: str


SignalAction = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogSignal


def from_json(text: bytes | str) -> Signal:
    """Parse ``{"id": …, "type": …, "data": {…}}``, the form in the topic and in the file."""
    body = _object(text, "the signal")
    return Signal(_string(body, "id", default=""), _string(body, "type"), _data(body.get("data")))


def from_row(values: Sequence[Any]) -> Signal:
    """Parse a row of the signal table: columns id, type and data by position."""
    if len(values) != 3:
        raise InvalidSignalError(f"the signal table has {len(values)} columns, not 3: id, type, data")
    signal_id, signal_type, data = values
    if not isinstance(signal_type, str):
        raise InvalidSignalError(f"type is {signal_type!r}, not a string")
    return Signal(str(signal_id), signal_type, _data(data))


def parse_action(signal: Signal) -> SignalAction:
    """Return the requested action. Raises InvalidSignalError."""
    data = signal.data
    match signal.type:
        case "execute-snapshot":
            return _execute(data)
        case "stop-snapshot":
            if _snapshot_type(data) == "blocking":
                raise InvalidSignalError('type "BLOCKING" cannot be stopped; use "INCREMENTAL"')
            return StopSnapshot(_expressions(data) if data.get("data-collections") else None)
        case "pause-snapshot":
            return PauseSnapshot()
        case "resume-snapshot":
            return ResumeSnapshot()
        case "log":
            return LogSignal(_string(data, "message"))
        case "schema-changes" | "set-binlog-position" | "snapshot-window-open" | "snapshot-window-close":
            raise InvalidSignalError(f"signals of type {signal.type!r} are not supported")
    raise InvalidSignalError(
        f"type {signal.type!r} is not known; use execute-snapshot, stop-snapshot, pause-snapshot, "
        "resume-snapshot or log"
    )


def _execute(data: Mapping[str, Any]) -> ExecuteSnapshot:
    if not data.get("data-collections"):
        raise InvalidSignalError("data-collections is missing or empty; list tables as db.table")
    conditions = []
    for entry in data.get("additional-conditions") or ():
        if not isinstance(entry, dict):
            raise InvalidSignalError(
                f"additional-conditions: {entry!r} is not an object with data-collection and filter"
            )
        conditions.append((_expression(_string(entry, "data-collection")), _string(entry, "filter")))
    blocking = _snapshot_type(data) == "blocking"
    if blocking and conditions:
        raise InvalidSignalError(
            "a blocking snapshot with additional-conditions is not supported, since its filters are whole SELECT "
            'statements; use type "INCREMENTAL", whose filters are conditions'
        )
    return ExecuteSnapshot(_expressions(data), tuple(conditions), blocking, _string(data, "surrogate-key", default=""))


def _snapshot_type(data: Mapping[str, Any]) -> str:
    snapshot_type = _string(data, "type", default="incremental").lower()
    if snapshot_type not in {"incremental", "blocking"}:
        raise InvalidSignalError(f"type {snapshot_type!r} is neither INCREMENTAL nor BLOCKING")
    return snapshot_type


def _expressions(data: Mapping[str, Any]) -> tuple[re.Pattern[str], ...]:
    collections = data["data-collections"]
    if not isinstance(collections, list) or not all(isinstance(text, str) and text.strip() for text in collections):
        raise InvalidSignalError(f"data-collections: {collections!r} is not a list of strings")
    return tuple(_expression(text.strip()) for text in collections)


def _expression(text: str) -> re.Pattern[str]:
    try:
        return compile_expression(text)
    except InvalidExpressionError as error:
        raise InvalidSignalError(f"data-collections: {error}") from None


def _data(value: Any) -> Mapping[str, Any]:
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, (str, bytes)):
        return _object(value, "data")
    raise InvalidSignalError(f"data is {value!r}, not an object")


def _object(text: bytes | str, name: str) -> dict[str, Any]:
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidSignalError(f"{name} is not JSON ({error}): {text[:200]!r}") from None
    if not isinstance(body, dict):
        raise InvalidSignalError(f"{name} is not a JSON object: {text[:200]!r}")
    return body


def _string(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value.strip() and default is None):
        raise InvalidSignalError(f"{name} is {'missing' if value is None else repr(value) + ', not a string'}")
    return value
