"""Compares every row of every sink table with its source row, value by value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.demo import sample_database
from tests.demo.deployment import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXAMPLES: Final = 3

Row = tuple[Any, ...]


@dataclass
class Comparison:
    """The result for one table. ``examples`` describe the first differences of each kind."""

    table: str
    source_rows: int = 0
    sink_rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    duplicate: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether both tables hold the same rows, each once."""
        return not (self.missing or self.extra or self.different or self.duplicate or self.examples)

    def note(self, kind: str, text: str) -> None:
        """Keep the first examples of each kind."""
        if sum(known.startswith(kind) for known in self.examples) < _EXAMPLES:
            self.examples.append(f"{kind} {text}")


def compare(server: Source, spark: SparkSession, sink: Path, table: str) -> Comparison:
    """Compare one source table with its Delta table at ``sink``."""

    def read() -> DataFrame:
        return spark.read.format("delta").load(str(sink))

    return compare_frame(server, read, table, sample_database.TABLES[table])


def compare_frame(server: Source, read: Callable[[], DataFrame], table: str, columns: str) -> Comparison:
    """Compare one source table with the rows that ``read`` returns. ``columns``: as in its CREATE TABLE."""
    result = Comparison(table)
    names, key, types = _describe(server, table)
    stored = _sink_rows(read, names, columns, result)
    rows: dict[Row, Row] = {}
    for row in stored:
        identity = tuple(row[i] for i in key)
        result.duplicate += identity in rows
        rows[identity] = row
        result.sink_rows += 1
    for row in _source_rows(server, table, names, types):
        result.source_rows += 1
        identity = tuple(row[i] for i in key)
        found = rows.pop(identity, None)
        if found is None:
            result.missing += 1
            result.note("missing", f"{identity}")
        elif found != row:
            result.different += 1
            values = [f"{n}: {a!r} -> {b!r}" for n, a, b in zip(names, row, found, strict=True) if a != b]
            result.note("different", f"{identity}: {'; '.join(values)}")
    result.extra = len(rows)
    for identity in rows:
        result.note("extra", f"{identity}")
    return result


def _describe(server: Source, table: str) -> tuple[list[str], list[int], list[str]]:
    """Return the column names, the positions of the key columns, and the column types."""
    sql = (
        "SELECT column_name, column_key, data_type FROM information_schema.columns"
        " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
    )
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(sql, (sample_database.DATABASE, table))
        found = cursor.fetchall()
    names = [name for name, _, _ in found]
    return names, [i for i, (_, key, _) in enumerate(found) if key == "PRI"], [kind for _, _, kind in found]


def _source_rows(server: Source, table: str, names: list[str], types: list[str]) -> Iterator[Row]:
    from pymysql.cursors import SSCursor  # noqa: PLC0415

    canonical = [_CANONICAL.get(column_type) for column_type in types]
    listed = ", ".join(f"`{name}`" for name in names)
    with server.connect(cursorclass=SSCursor) as session, session.cursor() as cursor:
        cursor.execute(f"SELECT {listed} FROM {sample_database.DATABASE}.{table}")
        for row in cursor:
            yield tuple(
                value if change is None or value is None else change(value)
                for value, change in zip(row, canonical, strict=True)
            )


def _sink_rows(read: Callable[[], DataFrame], names: list[str], columns: str, result: Comparison) -> Iterator[Row]:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - a container that loads rows has no Spark

    try:
        frame = read()
    except PySparkException as error:
        result.note("no table", str(error).splitlines()[0])
        return
    have = [name for name in frame.columns if name[:1] != "_" and not name.startswith("tailrace_")]
    if sorted(have) != sorted(names):
        result.note("columns", f"source {names}, sink {have}")
        return
    table = frame.select(*names).toArrow()
    is_json = [_is_json(columns, name) for name in names]
    for batch in table.to_batches():
        values = [
            [_sink_value(value, json_text=text) for value in column.to_pylist()]
            for column, text in zip(batch.columns, is_json, strict=True)
        ]
        yield from zip(*values, strict=True)


def _sink_value(value: Any, *, json_text: bool) -> Any:
    """Convert a sink value to the form of the source value."""
    if value is None:
        return None
    if json_text:
        return _json(value)
    if getattr(value, "tzinfo", None) is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _is_json(columns: str, column: str) -> bool:
    return any(line.split()[:2] == [column, "JSON"] for line in columns.splitlines())


def _json(text: str) -> Any:
    """Parse JSON with all digits of its numbers. The result compares regardless of spaces and key order."""
    try:
        return json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError:
        return text  # it differs from the source value and is reported


_CANONICAL: Final[dict[str, Callable[[Any], Any]]] = {"json": _json, "bit": lambda value: value != b"\x00"}
"""Type -> conversion of a source value before the comparison."""
