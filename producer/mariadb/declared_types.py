"""The columns of UUID, INET4, INET6 and VECTOR: the binlog has them as BINARY and VARBINARY, and tells no difference.

The catalog tells them, where ``mysql/binlog/proven_definitions.py`` proves that it holds. Where it does not, the rows
of the table are refused: a guess would falsify them.
"""

from __future__ import annotations

from typing import Final

from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import Column
from tailrace.producer.mysql.binlog.proven_definitions import Missing
from tailrace.producer.mysql.binlog.table_map import differs
from tailrace.producer.mysql.types.fixed_binary import WIDTHS

MISSING_TYPES: Final = Missing(
    "which columns are not BINARY and VARBINARY, but UUID, INET4, INET6 and VECTOR",
    "let a statement that changes such a column follow when the producer has read the changes before it",
)
LOGGED_AS_BINARY: Final = frozenset({*WIDTHS, "vector", "binary", "varbinary"})
"""Types that the binlog does not tell from each other."""

_BINARY_WIDTHS: Final = frozenset(WIDTHS.values())
_WITH_VECTORS: Final = 110_700
"""The version of servers that have VECTOR."""
_NUMBER_BYTES: Final = 4


def logged_as_binary(table: TableVersion) -> TableVersion:
    """Return a stored definition as ``read_types_with_end`` of the catalog returns it."""
    columns = tuple(Column(each.name, each.data_type) for each in table.columns if each.data_type in LOGGED_AS_BINARY)
    return TableVersion(table.id, columns, (), b"", table.since)


def is_ambiguous(table: TableVersion, version: int) -> bool:
    """Return whether a column of a TABLE_MAP event may have one of the types; ``version``: of the server."""
    return any(_may_be_another(column, version) for column in table.columns)


def declared(table: TableVersion, definition: TableVersion, version: int) -> TableVersion:
    """Return a definition of the binlog with the types of the catalog; its fingerprint has them by their place.

    Raises DefinitionDiffersError if a column cannot be what the catalog has.
    """
    types = {column.name: column.data_type for column in definition.columns}
    columns, places = [], ""
    for at, column in enumerate(table.columns):
        kind = types.get(column.name)
        if kind is not None and kind not in {"binary", "varbinary"}:
            if not _holds(column, kind):
                raise differs(definition, f"column {column.name} is {column.data_type}({column.length}), not {kind}")
            places += f"/{at}:{kind}"
            column = Column(column.name, kind, column.nullable, length=column.length if kind == "vector" else 0)  # noqa: PLW2901
        elif kind is None and _may_be_another(column, version):
            raise differs(definition, f"column {column.name} is {column.data_type}({column.length})")
        columns.append(column)
    return table._replace(
        columns=tuple(columns), fingerprint=table.fingerprint + places.encode(), since=definition.since
    )


def _may_be_another(column: Column, version: int) -> bool:
    if column.data_type == "varbinary" and version >= _WITH_VECTORS:
        return not column.compressed and column.length % _NUMBER_BYTES == 0
    return column.data_type == "binary" and column.length in _BINARY_WIDTHS


def _holds(column: Column, kind: str) -> bool:
    """Return whether the binlog has a column of this type so."""
    if kind == "vector":
        return column.data_type == "varbinary" and _may_be_another(column, _WITH_VECTORS)
    return column.data_type == "binary" and column.length == WIDTHS[kind]
