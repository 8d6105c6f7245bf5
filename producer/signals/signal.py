"""Debezium's signal types and their data, parsed from JSON. Errors include the invalid value.

A signal may come from anyone who may write to a channel: whatever it contains, parsing ends soon, with an action or an
``InvalidSignalError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from tailrace.producer.config.filters import InvalidExpressionError
from tailrace.producer.model.table import TableId
from tailrace.producer.signals.table_expression import TableExpression
from tailrace.schemas.verification import ChosenKeys

T = TypeVar("T")

MAX_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 32
MAX_ID: Final = 255
_SHOWN: Final = 200
"""Characters of an invalid value that a message includes."""


class InvalidSignalError(ValueError):
    """An invalid signal; the message is the reason, and may quote the signal, in which values of rows can be."""

    shown = "it is not valid: the log of the producer has the reason"
    """The reason for /status."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A received signal; ``data`` is {} if it has none."""

    id: str
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Start an incremental snapshot. ``conditions``: an expression for tables, and an SQL condition on their rows."""

    tables: tuple[TableExpression, ...]
    conditions: tuple[tuple[TableExpression, str], ...] = ()
    blocking: bool = False
    surrogate_key: str = ""
    keys: ChosenKeys | None = None
    """The keys of the only table whose rows are read; None: all."""
    table: TableId | None = None
    """The table of the keys, where the signal has its exact name: an expression may match others, too."""

    def condition(self, table: str) -> str:
        return next((sql for expression, sql in self.conditions if expression.fullmatch(table)), "")

    def check_conditions(self, problem_of: Callable[[str], str]) -> None:
        """Raise InvalidSignalError if the source says of a condition that it is not a predicate."""
        for _, condition in self.conditions:
            if problem := problem_of(condition):
                error = InvalidSignalError(
                    f"additional-conditions: the filter {_shown(condition)} is not a predicate: {problem}"
                )
                error.shown = f"additional-conditions: the filter is not a predicate: {problem}"
                raise error


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Stop the incremental snapshot of tables; None: of all."""

    tables: tuple[TableExpression, ...] | None


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


@dataclass(frozen=True, slots=True)
class SetBinlogPosition:
    """Go on at another place of the binlog: a GTID set, or file:position."""

    position: str


SignalAction = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogSignal | SetBinlogPosition


def read_signal(parse: Callable[[T], Signal], value: T) -> Signal | InvalidSignalError:
    """Return the parsed signal, or the error whatever is wrong with the value."""
    try:
        signal = parse(value)
        if len(signal.id) > MAX_ID:
            raise InvalidSignalError(f"id has more than {MAX_ID} characters: {_shown(signal.id)}")
    except InvalidSignalError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a value that no rule foresaw must not stop the stream
        return InvalidSignalError(f"it cannot be read ({type(error).__name__}: {_shown(str(error))})")
    return signal


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
        raise InvalidSignalError(f"type is {_shown(signal_type)}, not a string")
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
        case "set-binlog-position":
            return SetBinlogPosition(_named_position(data))
        case "schema-changes" | "snapshot-window-open" | "snapshot-window-close":
            raise InvalidSignalError(f"signals of type {signal.type!r} are not supported")
    raise InvalidSignalError(
        f"type {_shown(signal.type)} is not known; use execute-snapshot, stop-snapshot, pause-snapshot, "
        "resume-snapshot, set-binlog-position or log"
    )


def _named_position(data: Mapping[str, Any]) -> str:
    """Return the place that ``{"gtid_set": …}`` or ``{"binlog_filename": …, "binlog_position": …}`` names."""
    if data.keys() == {"gtid_set"}:
        gtids = _string(data, "gtid_set")
        if not any(map(str.isdigit, gtids)):
            raise InvalidSignalError(f"gtid_set {_shown(gtids)} is not a GTID set")
        return gtids
    position = data.get("binlog_position")
    if data.keys() != {"binlog_filename", "binlog_position"} or type(position) is not int or position < 0:
        raise InvalidSignalError(
            f"{_shown(dict(data))} is neither a gtid_set nor a binlog_filename and binlog_position"
        )
    return f"{_string(data, 'binlog_filename')}:{position}"


def _execute(data: Mapping[str, Any]) -> ExecuteSnapshot:
    if not data.get("data-collections"):
        raise InvalidSignalError("data-collections is missing or empty; list tables as db.table")
    entries = data.get("additional-conditions")
    if entries is not None and not isinstance(entries, list):
        raise InvalidSignalError(f"additional-conditions: {_shown(entries)} is not a list of objects")
    conditions = [_condition(entry) for entry in entries or ()]
    blocking = _snapshot_type(data) == "blocking"
    if blocking and conditions:
        raise InvalidSignalError(
            "a blocking snapshot with additional-conditions is not supported, since its filters are whole SELECT "
            'statements; use type "INCREMENTAL", whose filters are conditions'
        )
    tables, keys = _expressions(data), _keys(data.get("keys"))
    if keys is not None and (len(tables) != 1 or conditions or blocking):
        raise InvalidSignalError("keys are those of one table, in an INCREMENTAL snapshot without conditions")
    surrogate_key, table = _string(data, "surrogate-key", default=""), _table_of_keys(data.get("keys"))
    return ExecuteSnapshot(tables, tuple(conditions), blocking, surrogate_key, keys, table)


def _keys(body: Any) -> ChosenKeys | None:
    if body is None:
        return None
    parts: tuple[Any, ...] = (body.get("columns"), body.get("texts")) if isinstance(body, dict) else ()
    if not parts or not all(isinstance(part, list) and all(isinstance(each, str) for each in part) for part in parts):
        raise InvalidSignalError(f"keys: {_shown(body)} is not an object with the lists of strings columns and texts")
    keys = ChosenKeys(tuple(parts[0]), tuple(parts[1]))
    if problem := keys.problem():
        raise InvalidSignalError(f"keys: {problem}")
    return keys


def _table_of_keys(body: Mapping[str, Any] | None) -> TableId | None:
    names = [] if body is None else [body[name] for name in ("database", "table") if name in body]
    if not names:
        return None
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise InvalidSignalError(f"keys: {_shown(names)} are not the strings database and table")
    return TableId(*names)


def _condition(entry: Any) -> tuple[TableExpression, str]:
    if not isinstance(entry, dict):
        raise InvalidSignalError(
            f"additional-conditions: {_shown(entry)} is not an object with data-collection and filter"
        )
    return _expression(_string(entry, "data-collection")), _string(entry, "filter")


def _snapshot_type(data: Mapping[str, Any]) -> str:
    snapshot_type = _string(data, "type", default="incremental").lower()
    if snapshot_type not in {"incremental", "blocking"}:
        raise InvalidSignalError(f"type {_shown(snapshot_type)} is neither INCREMENTAL nor BLOCKING")
    return snapshot_type


def _expressions(data: Mapping[str, Any]) -> tuple[TableExpression, ...]:
    collections = data["data-collections"]
    if not isinstance(collections, list) or not all(isinstance(text, str) and text.strip() for text in collections):
        raise InvalidSignalError(f"data-collections: {_shown(collections)} is not a list of strings")
    return tuple(_expression(text.strip()) for text in collections)


def _expression(text: str) -> TableExpression:
    try:
        return TableExpression.parse(text)
    except InvalidExpressionError as error:
        raise InvalidSignalError(f"data-collections: {error}") from None


def _data(value: Any) -> Mapping[str, Any]:
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        _require_shallow(value, "data")
        return value
    if isinstance(value, (str, bytes)):
        return _object(value, "data")
    raise InvalidSignalError(f"data is {_shown(value)}, not an object")


def _object(text: bytes | str, name: str) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise InvalidSignalError(f"{name} has more than {MAX_BYTES} bytes")
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidSignalError(f"{name} is not JSON ({error}): {_shown(text)}") from None
    if not isinstance(body, dict):
        raise InvalidSignalError(f"{name} is not a JSON object: {_shown(text)}")
    _require_shallow(body, name)
    return body


def _require_shallow(body: dict[str, Any], name: str) -> None:
    """Raise if values are nested too deep for a recursive writer, such as that of the log."""
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            if isinstance(value, (dict, list))
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise InvalidSignalError(f"{name} has more than {MAX_DEPTH} nested levels")


def _string(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value.strip() and default is None):
        raise InvalidSignalError(f"{name} is {'missing' if value is None else _shown(value) + ', not a string'}")
    return value


def _shown(value: Any) -> str:
    """Return a value for a message: escaped, and not longer than useful."""
    if isinstance(value, (str, bytes)):
        return repr(value[:_SHOWN])
    return repr(value)[:_SHOWN]
