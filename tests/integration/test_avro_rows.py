"""Avro rows contain the values of JSON rows: every type and mode, from SELECT and binlog, decoded by fastavro."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Final

import pytest

from tailrace.producer.model.codec import EventRows, KeyChange
from tailrace.producer.model.table import Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.result_stream import read_rows
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.column_default import field_with_default
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema, schema_json
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.producer.serialization.envelope_frame import RecordFormat
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tests.debezium_parity.statements import _DEFAULT_ROWS, _DEFAULTS
from tests.debezium_parity.type_tables import TYPE_TABLES, TypeTable
from tests.integration.test_snapshot_stream_equality import MODES
from tests.support.avro import Avro, value_of
from tests.support.codec import BothSources
from tests.support.database import Database
from tests.support.values import value_options

KEY_ID: Final = 7
VALUE_ID: Final = 0x01020304

Pair = tuple[bytes, bytes | None]


def _format(table: Table, settings: ValueOptions, key: str, value: str, *, exact: bool = False) -> RecordFormat:
    """Return the record format of a table, with the defaults of the catalog."""
    fields = tuple(field_with_default(column, column.name, settings) for column in table.columns)
    at = {field.name: field for field in fields}
    return RecordFormat(
        key=key,  # type: ignore[arg-type]
        value=value,  # type: ignore[arg-type]
        columns=fields,
        key_schema=key_schema("t.db.name", [at[name] for name in table.key]),
        value_schema=envelope_schema("t.db.name", fields),
        key_id=KEY_ID,
        value_id=VALUE_ID,
        exact_nulls=exact,
    )


def _flat(rows: EventRows) -> list[Pair]:
    """Return records with each changed key as its two envelopes."""
    found: list[Pair] = []
    for record in rows.records:
        if isinstance(record, KeyChange):
            found += [(record.old_key, record.delete), (record.new_key, record.create)]
            found.append((record.new_key_header, record.old_key_header))
        else:
            found.append(record)
    return found


class _Records:
    """All records of one table by a codec: rows selected, inserted, updated, with a changed key, deleted."""

    def __init__(self, sources: BothSources, table: Table) -> None:
        self._sources = sources
        self._table = table
        source = SourceInfo("shop", table.id)
        self._snapshot = source.snapshot_envelope({"file": "b.1", "pos": 4}, read_at_us=1_795_256_413_373_893, now_us=1)
        self._event = source.event_envelope(
            ts_us=1_795_256_413_000_000,
            server_id=4_294_967_295,
            gtid="",
            file="b.000002",
            pos=1 << 33,
            thread=9,
            query='say "é😀"',
            now_us=2,
            first_row=100,
        )

    def records(self, codec: TableCodec, *, selected: bool = True) -> list[Pair]:
        found: list[Pair] = []
        if selected:
            sql = f"SELECT {codec.select_list} FROM {self._table.id.quoted} ORDER BY id"
            with closing(self._sources.session()) as session:
                for block in read_rows(session, sql, codec, self._snapshot):
                    found += block.records
        for rows in self._sources.rows_events(self._table):
            found += _flat(codec.encoders[rows.op](rows.data, rows.start, rows.stop, self._event, keys=True))
        return found


def _filled(database: Database, family: TypeTable) -> BothSources:
    sources = BothSources(database)
    for statement in (family.create(), *family.inserts()):
        database.execute(statement)
    database.execute(f"UPDATE `{family.name}` SET id = id + 10000 WHERE id = 1")
    database.execute(f"DELETE FROM `{family.name}` WHERE id = 10001")
    return sources


@pytest.mark.parametrize("family", TYPE_TABLES, ids=lambda family: family.name)
def test_avro_contains_the_values_of_json(database: Database, family: TypeTable) -> None:
    """fastavro reads the values that JSON prints, and writes the same bytes after the Confluent header."""
    sources = _filled(database, family)
    table = sources.table(family.name)
    table_records = _Records(sources, table)
    for settings in MODES:
        record_format = _format(table, settings, "avro", "avro")
        key, value = Avro(avro_schema(record_format.key_schema)), Avro(avro_schema(record_format.value_schema))
        ours = table_records.records(TableCodec(table, "topic", CodecOptions(settings), record_format))
        plain = table_records.records(TableCodec(table, "topic", CodecOptions(settings)))

        assert len(ours) == len(plain) > 2 * len(family.rows)
        for (our_key, our_value), (plain_key, plain_value) in zip(ours, plain, strict=True):
            if plain_value is not None and not plain_value.startswith(b'{"before"'):
                assert (our_key, our_value) == (plain_key, plain_value)  # the headers of a changed key
                continue
            expected = value_of(record_format.key_schema, json.loads(plain_key))
            assert our_key[:5] == b"\0" + KEY_ID.to_bytes(4, "big")
            assert key.read(our_key[5:]) == expected
            assert key.write(expected) == our_key[5:]
            if plain_value is None:
                assert our_value is None
                continue
            assert our_value is not None
            expected = value_of(record_format.value_schema, json.loads(plain_value))
            assert our_value[:5] == b"\0" + VALUE_ID.to_bytes(4, "big")
            assert value.read(our_value[5:]) == expected
            assert value.write(expected) == our_value[5:]


@pytest.mark.parametrize("key", ["json", "json-schema", "avro"])
@pytest.mark.parametrize("value", ["json", "json-schema", "avro"])
def test_key_and_value_are_independent(database: Database, key: str, value: str) -> None:
    """Each side equals that of records with one converter for both table_records."""
    family = next(each for each in TYPE_TABLES if each.name == "strings")
    sources = _filled(database, family)
    table = sources.table(family.name)
    table_records, settings = _Records(sources, table), value_options()

    def records(key: str, value: str) -> list[Pair]:
        return table_records.records(
            TableCodec(table, "topic", CodecOptions(settings), _format(table, settings, key, value))
        )

    mixed, keys, values = records(key, value), records(key, key), records(value, value)

    assert [each[0] for each in mixed] == [each[0] for each in keys]
    assert [each[1] for each in mixed] == [each[1] for each in values]


def test_payload_with_schema_equals_plain_json(database: Database) -> None:
    """Byte for byte."""
    family = next(each for each in TYPE_TABLES if each.name == "integers")
    sources = _filled(database, family)
    table = sources.table(family.name)
    table_records, settings = _Records(sources, table), value_options()
    record_format = _format(table, settings, "json-schema", "json-schema")
    before = [
        f'{{"schema":{schema_json(each)},"payload":'.encode()
        for each in (record_format.key_schema, record_format.value_schema)
    ]

    ours = table_records.records(TableCodec(table, "topic", CodecOptions(settings), record_format))
    plain = table_records.records(TableCodec(table, "topic", CodecOptions(settings)))

    around = [
        pair
        if pair[1] is not None and not pair[1].startswith(b'{"before"')
        else (before[0] + pair[0] + b"}", None if pair[1] is None else before[1] + pair[1] + b"}")
        for pair in plain
    ]
    assert ours == around


@pytest.mark.parametrize("converter", ["json", "json-schema", "avro"])
def test_defaults_replace_null_if_configured(database: Database, converter: str) -> None:
    """As in Connect's converters, from SELECT and binlog; otherwise NULL is kept."""
    sources = BothSources(database)
    database.execute(_DEFAULTS.format(name="defaults"))
    for statement in _DEFAULT_ROWS:
        database.execute(statement.format(name="defaults", a=1, b=2))
    table = sources.table("defaults")
    table_records, settings = _Records(sources, table), value_options()
    defaults = {field.name: field.schema.default for field in _format(table, settings, converter, converter).columns}

    def rows(*, exact: bool, selected: bool) -> list[dict[str, object]]:
        record_format = _format(table, settings, converter, converter, exact=exact)
        codec = TableCodec(table, "topic", CodecOptions(settings), record_format)
        values = [value for _, value in table_records.records(codec, selected=selected) if value is not None]
        if converter == "avro":
            avro = Avro(avro_schema(record_format.value_schema))
            return [avro.read(value[5:])["after"] for value in values]
        parsed = [json.loads(value) for value in values]
        return [(each["payload"] if converter == "json-schema" else each)["after"] for each in parsed]

    kept, replaced = rows(exact=False, selected=True), rows(exact=True, selected=True)

    assert replaced[:2] == replaced[2:]  # SELECT and log
    nulls = [name for name, value in kept[1].items() if value is None]
    assert {"ti", "i", "v", "da", "t", "f", "de", "bt", "e", "s", "ts", "dtc"} <= set(nulls)
    for name in nulls:
        default = defaults[name]
        field = next(each for each in _format(table, settings, converter, converter).columns if each.name == name)
        expected = value_of(field.schema, default) if converter == "avro" else default
        assert replaced[1][name] == expected, name
    assert {name: kept[1][name] for name in kept[1] if name not in nulls} == {
        name: replaced[1][name] for name in kept[1] if name not in nulls
    }
