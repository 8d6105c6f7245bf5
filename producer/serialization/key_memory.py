"""What the catalog says of the keys of tables at their first use.

The binlog describes neither the defaults and comments of key columns, which are part of a key that is written with its
schema, nor the unique index that replaces a missing primary key. Both decide the bytes of keys, and so partition and
order. They must not follow a catalog that changes, so the state has them too. So it has the definitions of tables of
which the binlog lacks a part that the source has proven (``mysql/binlog/proven_definitions.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import orjson

from tailrace.producer.model.binlog_events import EARLIER, TableVersion
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import Column, ColumnCatalog, TableId
from tailrace.schemas.known_fields import known_fields


@dataclass(slots=True)
class KnownKey:
    """What is known of the keys of one table."""

    unique: tuple[str, ...] | None = None
    """The unique index that is the key of a table without primary key, or (); None: not known, or not needed."""
    versions: list[tuple[Column, ...]] = field(default_factory=list)
    """The key columns of each key that the table had, with their catalog at its first use."""
    definition: TableVersion | None = None
    """In force at the stored offset; None: the binlog has it, or no row has needed it."""

    def to_json(self, *, definition: bool = True) -> bytes:
        """Return the value of the state record, or that without ``definition``."""
        versions = [[_column_to_json(column) for column in version] for version in self.versions]
        body: dict[str, Any] = {"unique": self.unique, "versions": versions}
        if definition and self.definition is not None:
            table, columns, key, _, since = self.definition
            columns_json = [_column_to_json(column) for column in columns]
            body["definition"] = {"id": list(table), "columns": columns_json, "primary_key": key, "since": since}
        return orjson.dumps(body)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> KnownKey:
        versions = [tuple(map(_column_from_json, version)) for version in body["versions"]]
        known = cls(None if body["unique"] is None else tuple(body["unique"]), versions)
        if stored := body.get("definition"):
            columns = tuple(map(_column_from_json, stored["columns"]))
            known.definition = TableVersion(
                TableId(*stored["id"]), columns, tuple(stored["primary_key"]), b"", stored["since"]
            )
        return known


class CatalogRead(NamedTuple):
    """When the catalog was read for a unique index; the stream may be far before that."""

    at: Offset
    """What the source had executed before the catalog was read."""
    written: bool
    """Rows of the stream have been written with the key."""


class KeyMemory:
    """The known keys by table name. The stream's thread changes it; snapshot readers get a copy when they start."""

    def __init__(self) -> None:
        self._tables: dict[str, KnownKey] = {}
        self._unsaved: set[str] = set()
        self._reads: dict[str, CatalogRead] = {}
        """Of unique indexes; not stored: after a restart, the time of a reading is not known any more."""

    def load(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        """Use the records of the state, which come before what was added without them."""
        for name, body in stored.items():
            found = KnownKey.from_json(body)
            added = self._tables.get(name)
            self._tables[name] = found
            self._unsaved.discard(name)
            if found.unique is not None:
                self._reads.pop(name, None)
            elif added is not None and added.unique is not None:
                found.unique = added.unique
                self._unsaved.add(name)
            for version in added.versions if added is not None else ():
                self.columns(name, version)

    def dump(self) -> dict[str, Mapping[str, Any]]:
        """Return all records as ``load`` takes them, without definitions: those are for the stream."""
        return {name: orjson.loads(known.to_json(definition=False)) for name, known in list(self._tables.items())}

    def columns(self, table: TableId | str, key: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns of a key with their catalog at the first use of that key."""
        known = self._tables.setdefault(str(table), KnownKey())
        for version in known.versions:
            if version == key:  # compares without the catalog
                return version
        known.versions.append(key)
        self._unsaved.add(str(table))
        return key

    def unique_key(self, table: TableId, columns: Iterable[Column]) -> tuple[str, ...] | None:
        """Return the known unique index of a table with these columns, () if it has none; None: not known."""
        known = self._tables.get(str(table))
        if known is None or known.unique is None:
            return None
        return known.unique if {column.name for column in columns}.issuperset(known.unique) else None

    def set_unique_key(self, table: TableId, key: tuple[str, ...], read: CatalogRead | None = None) -> None:
        """Set the unique index of a table without primary key; ``read``: it was just read from the catalog."""
        known = self._tables.setdefault(str(table), KnownKey())
        if known.unique != key:
            known.unique = key
            self._unsaved.add(str(table))
            self._reads.pop(str(table), None)
        if read is not None:
            self._reads[str(table)] = read

    def set_definition(self, version: TableVersion) -> None:
        """Keep the definition in force of a table, unless the binlog has it, or the rows are of earlier."""
        if version.since == EARLIER:
            return
        if not version.since:
            self.forget_definition(version.id)
            return
        known = self._tables.setdefault(str(version.id), KnownKey())
        definition = version._replace(fingerprint=b"")
        if known.definition != definition:
            known.definition = definition
            self._unsaved.add(str(version.id))

    def forget_definition(self, table: TableId) -> bool:
        """A definition ends here; return whether there was one."""
        known = self._tables.get(str(table))
        if known is None or known.definition is None:
            return False
        known.definition = None
        self._unsaved.add(str(table))
        return True

    def definitions(self) -> list[TableVersion]:
        return [known.definition for known in self._tables.values() if known.definition is not None]

    def knows_unique_key(self, table: TableId) -> bool:
        known = self._tables.get(str(table))
        return known is not None and known.unique is not None

    def read_after(self, table: TableId, gtid: str) -> CatalogRead | None:
        """Return the reading that gave the unique index of a table, if the source had executed ``gtid`` before."""
        read = self._reads.get(str(table))
        return read if read is not None and read.at.including(gtid) == read.at else None

    def forget_unique_key(self, table: TableId) -> bool:
        """Forget the unique index of a table, which a statement may have changed; return whether there was one."""
        known = self._tables.get(str(table))
        if known is None or known.unique is None:
            return False
        known.unique = None
        self._reads.pop(str(table), None)
        self._unsaved.add(str(table))
        return True

    def take_unsaved(self) -> list[tuple[str, bytes]]:
        """Return the records that the state does not have yet."""
        unsaved, self._unsaved = self._unsaved, set()
        return [(name, self._tables[name].to_json()) for name in sorted(unsaved)]


def _column_to_json(column: Column) -> dict[str, Any]:
    body = asdict(column)
    if column.catalog is not None and column.catalog.default_value is not None:
        body["catalog"]["default_value"] = column.catalog.default_value.hex()
    return body


def _column_from_json(body: Mapping[str, Any]) -> Column:
    catalog = body["catalog"]
    if catalog is not None:
        value = catalog["default_value"]
        catalog = known_fields(ColumnCatalog, catalog)
        catalog = ColumnCatalog(**{**catalog, "default_value": None if value is None else bytes.fromhex(value)})
    return Column(**{**known_fields(Column, body), "enum_values": tuple(body["enum_values"]), "catalog": catalog})
