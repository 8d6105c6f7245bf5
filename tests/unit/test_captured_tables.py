"""What the catalog adds to table versions of the binlog, and what it must not change later."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from tailrace.producer.config import load
from tailrace.producer.errors import EarlierKeyError
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import CatalogTable, Column, ColumnCatalog, Table, TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema
from tests.support.stream import START
from tests.unit.test_config_load import BASE

TABLE = TableId("shop", "t")
WITH_SCHEMAS = {**BASE, "key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}


def column(name: str, data_type: str = "int", default: str | None = None) -> Column:
    """Return a column of the catalog."""
    known = ColumnCatalog(data_type, None, default, False, False, False, "")
    return Column(name, data_type, nullable=False, catalog=known)


def logged(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableVersion:
    """Return a version of the binlog with these columns."""
    return TableVersion(TABLE, tuple(replace(each, catalog=None) for each in columns), key, b"")


class Catalog:
    """The catalog, which a test changes; None: the table is gone."""

    def __init__(self, *columns: Column, unique: tuple[str, ...] = (), logged: bool = False) -> None:
        """``logged``: the binlog names the unique index."""
        self.columns: tuple[Column, ...] | None = columns
        self.unique = unique
        self._logged = logged

    def describe(self, table: TableId) -> CatalogTable:
        """Return the definition now."""
        if self.columns is None:
            raise SchemaError(f"table {table} does not exist")
        primary = () if self.unique else ("id",)
        return CatalogTable(Table(TABLE, self.columns, ("id",)), primary, self.unique, frozenset(), {}, self._logged)


def schemas(tables: CapturedTables, version: TableVersion) -> tuple[ConnectSchema, dict[str, object]]:
    """Return the key schema of a version, and the defaults of its rows."""
    tables.version_of(version)
    found = tables._last_formats[TABLE]
    return found.key_schema, {field.name: field.schema.default for field in found.columns}


@pytest.mark.parametrize(
    "now",
    [
        (column("id", default="7"), column("n", "bigint", "6"), column("m", default="8")),
        (column("id", default="7"), column("m", default="8")),
        (column("id", default="7"), column("n", default="5"), column("m", default="8"), column("x")),
    ],
    ids=["modified", "dropped", "added"],
)
def test_a_change_of_one_column_leaves_the_defaults_of_the_others(now: tuple[Column, ...]) -> None:
    """Met first after a restart, with the catalog of a later definition."""
    then = column("id", default="7"), column("n", default="5"), column("m", default="8")
    config = load(None, {}, WITH_SCHEMAS)
    key_then, _ = schemas(CapturedTables(config, Catalog(*then).describe), logged(*then))

    key_now, defaults = schemas(CapturedTables(config, Catalog(*now).describe), logged(*then))

    assert key_now == key_then
    assert key_now.fields[0].schema.default == 7
    assert (defaults["id"], defaults["m"]) == (7, 8)
    assert defaults["n"] == (5 if now[1] == then[1] else None)


@pytest.mark.parametrize("now", [(column("id", default="9"), column("n")), (column("id"), column("n")), None])
def test_key_bytes_do_not_follow_the_catalog(now: tuple[Column, ...] | None) -> None:
    """Another default of the key column, none, or no table: versions of the same key have the key schema of before."""
    catalog = Catalog(column("id", default="7"), column("n"))
    tables = CapturedTables(load(None, {}, WITH_SCHEMAS), catalog.describe)
    before, _ = schemas(tables, logged(column("id"), column("n")))
    catalog.columns = now

    after, defaults = schemas(tables, logged(column("id"), column("n"), column("added")))

    assert after == before
    assert defaults["id"] == (9 if now and now[0].catalog and now[0].catalog.default else None)


def test_a_stand_in_key_does_not_follow_the_catalog() -> None:
    """Until the statement that changes it is read; also for a table that is gone by now."""
    catalog = Catalog(column("a"), column("b"), unique=("a",))
    tables = CapturedTables(load(None, {}, BASE), catalog.describe)
    first, later = logged(column("a"), column("b"), key=()), logged(column("a"), column("b"), column("c"), key=())
    assert tables.version_of(first).table.key == ("a",)
    catalog.unique = ("b",)
    restarted = CapturedTables(load(None, {}, BASE), catalog.describe)
    restarted.keys.load(tables.keys.dump())

    assert tables.version_of(later).table.key == restarted.version_of(first).table.key == ("a",)
    catalog.columns = None
    assert tables.version_of(first).table.key == ("a",)
    with pytest.raises(SchemaError, match="does not exist"):
        CapturedTables(load(None, {}, BASE), catalog.describe).version_of(first)


def test_a_unique_index_of_later_is_no_key_of_the_rows_before_it() -> None:
    """They may have NULLs and duplicates in its columns, or not have these columns."""
    catalog = Catalog(column("a"), column("b"), unique=("b",), logged=True)
    before, with_column = logged(column("a"), key=()), logged(column("a"), column("b"), key=())
    later = logged(column("a"), column("b"), key=("b",))
    tables = CapturedTables(load(None, {}, BASE), catalog.describe)
    assert not tables.lacks_stand_in_key(catalog.describe(TABLE))
    for version in (before, with_column):
        with pytest.raises(EarlierKeyError, match=r"shop.t have no key here, and the table has the key \(b\) by a"):
            tables.version_of(version)
    assert tables.version_of(later).table.key == ("b",)
    with pytest.raises(
        EarlierKeyError, match=r"name columns that all rows have in message.key.columns \(shop.t:column\)"
    ):
        tables.version_of(before)
    named = CapturedTables(load(None, {}, {**BASE, "message.key.columns": "shop.t:a"}), catalog.describe)
    assert named.version_of(before).table.key == ("a",)

    whole = CapturedTables(load(None, {}, {**BASE, "tailrace.tables.without.key": "full-row"}), catalog.describe)
    assert [whole.version_of(version).table.key for version in (before, with_column, later)] == [
        ("a",),
        ("a", "b"),
        ("b",),
    ]


def test_a_stand_in_key_is_known_from_the_first_start_on() -> None:
    """Also if the stream has no change of the table before the index is replaced; a stored key counts more."""
    catalog = Catalog(column("a"), column("b"), unique=("a",))
    config, version = load(None, {}, BASE), logged(column("a"), column("b"), key=())
    tables = CapturedTables(config, catalog.describe)
    tables.remember_stand_in_key(catalog.describe(TABLE), START)
    catalog.unique = ("b",)
    assert tables.version_of(version).table.key == ("a",)
    stored = {name: orjson.loads(value) for name, value in tables.keys.take_unsaved()}

    restarted = CapturedTables(config, catalog.describe)
    restarted.remember_stand_in_key(catalog.describe(TABLE), START)
    restarted.keys.load(stored)

    assert restarted.version_of(version).table.key == ("a",)
    assert restarted.keys.take_unsaved() == []
    forgotten = CapturedTables(config, catalog.describe)
    forgotten.remember_stand_in_key(catalog.describe(TABLE), START)
    forgotten.keys.load({name: {**body, "unique": None} for name, body in stored.items()})
    assert forgotten.version_of(version).table.key == ("b",)
    assert len(forgotten.keys.take_unsaved()) == 1


@pytest.mark.parametrize("met_by", ["stream", "check"])
def test_key_bytes_do_not_follow_the_catalog_across_a_restart(met_by: str) -> None:
    """The first use is by an event, or by the check at the start; the new start checks the changed catalog first."""
    catalog = Catalog(column("id", default="7"), column("n"))
    config, version = load(None, {}, WITH_SCHEMAS), logged(column("id"), column("n"))
    tables = CapturedTables(config, catalog.describe)
    if met_by == "stream":
        tables.version_of(version)
    else:
        tables.key_of(catalog.describe(TABLE))
    stored = {name: orjson.loads(value) for name, value in tables.keys.take_unsaved()}
    catalog.columns = column("id", default="9"), column("n")
    restarted = CapturedTables(config, catalog.describe)
    restarted.key_of(catalog.describe(TABLE))
    restarted.keys.load(stored)

    key, _ = schemas(restarted, version)

    assert key.fields[0].schema.default == 7
    assert restarted.keys.take_unsaved() == []
    changed = logged(column("id", "bigint"), column("n"))
    catalog.columns = column("id", "bigint", "11"), column("n")
    key, _ = schemas(restarted, changed)
    assert (key.fields[0].schema.type, key.fields[0].schema.default) == ("int64", 11)
    [(name, _)] = restarted.keys.take_unsaved()
    assert name == "shop.t"


def test_plain_keys_need_no_memory() -> None:
    tables = CapturedTables(load(None, {}, BASE), Catalog(column("id", default="7")).describe)
    tables.version_of(logged(column("id")))

    assert tables.keys.dump() == {}
