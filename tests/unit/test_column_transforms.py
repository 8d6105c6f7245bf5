"""Dropped, masked, hashed and truncated columns: Debezium's bytes, unchanged keys, hidden salts, contradictions."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.producer.config import ProducerConfig, describe, load
from tailrace.producer.config.column_transforms import Hash, read_rule, without_salt
from tailrace.producer.config.filters import InvalidExpressionError
from tailrace.producer.model.codec import EventRows, KeyChange, SnapshotEnvelope
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import Converter
from tailrace.producer.mysql.types.registry import connect_field
from tailrace.producer.serialization.column_transforms import ColumnTransforms
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.producer.serialization.envelope_frame import RecordFormat
from tailrace.producer.serialization.masking import hasher, java_serialized
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import ConfigError, SchemaError
from tests.support.values import value_options
from tests.unit.test_codec_changes import ENVELOPE
from tests.unit.test_config_load import BASE

SALT = "s.alt with=odd:parts"
ID = Column("id", "int", nullable=False)
MAIL = Column("mail", "varchar", nullable=False, length=80, charset="utf8mb4")
NOTE = Column("note", "text", length=65535, charset="latin1")
AGE = Column("age", "int")
TABLE = Table(TableId("shop", "people"), (ID, MAIL, NOTE, AGE), ("id",))
WHOLE = (TABLE.id, TABLE.columns, TABLE.key)
BY_MAIL = Table(TABLE.id, TABLE.columns, ("mail",))
SETTINGS = value_options()


def configured(properties: Mapping[str, str]) -> ColumnTransforms:
    """Return the column transforms of a configuration."""
    return ColumnTransforms(config(properties).filters)


def config(properties: Mapping[str, str]) -> ProducerConfig:
    """Load a configuration with these properties."""
    return load(None, {}, {**BASE, **properties})


def image(number: int, mail: str, note: str | None, age: int | None) -> bytes:
    """Return a row image of TABLE."""
    found = bytes([(note is None) << 2 | (age is None) << 3]) + number.to_bytes(4, "little")
    found += bytes([len(mail.encode())]) + mail.encode()
    if note is not None:
        found += len(note.encode("cp1252")).to_bytes(2, "little") + note.encode("cp1252")
    return found + (b"" if age is None else age.to_bytes(4, "little"))


def compiled(properties: Mapping[str, str], table: Table = TABLE, **more: Any) -> TableCodec:
    """Compile a table under a configuration."""
    found = configured(properties)
    projection = found.project(table.id, table.columns, table.key)
    return TableCodec(table, "t", CodecOptions(SETTINGS, projection, **more))


def inserted(codec: TableCodec, *images: bytes) -> list[tuple[Any, Any]]:
    """Return (key, row) of inserted rows, parsed; both decoders of row images must agree."""
    event = b"".join(images)
    plain = codec.inserts(event, 0, len(event), ENVELOPE)
    assert codec.inserts(event, 0, len(event), ENVELOPE, keys=True).records == plain.records
    return [(json.loads(k), json.loads(v)["after"]) for k, v in _pairs(plain)]


def _pairs(rows: EventRows) -> list[tuple[bytes, bytes]]:
    found = []
    for record in rows.records:
        assert not isinstance(record, KeyChange)
        assert record[1] is not None
        found.append((record[0], record[1]))
    return found


@pytest.mark.parametrize(
    ("algorithm", "plain", "text", "digest"),
    [
        ("sha256", False, "hello", "af5843a0f0e728ab0332c8888b6e1190bfb79e584f0d40538de8f10df6ef29c6"),
        ("sha256", False, "world", "4588e1f2dcdc7fefc1515d3acd5acb9033478eace68286f383c337b9ff4464a3"),
        ("md5", False, "hello", "46f48a7a5ea32efba87cbff49d46d35a"),
        ("sha256", True, "hello", "cd31b3b98ece60cb739c0bf770b2de892ae0ad133f645513c3d83f08757a843a"),
        ("md5", True, "world", "172c8e95398cc72ab5358ead6981e7e5"),
    ],
)
def test_hashes_equal_those_of_debezium(algorithm: str, plain: bool, text: str, digest: str) -> None:
    """Known digests with the salt ``salt``, truncated to the length of the column."""
    change = Hash(algorithm, b"salt", plain=plain)

    assert hasher(change, None)(text.encode()).decode() == digest
    assert hasher(change, 0)(text.encode()).decode() == digest
    assert hasher(change, 12)(text.encode()).decode() == digest[:12]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", "aced000574 0000"),
        ("aé", "aced000574 0003 61c3a9"),
        ("\0", "aced000574 0002 c080"),
        ("😀", "aced000574 0006 eda0bdedb880"),
    ],
)
def test_java_serialization_of_text(text: str, data: str) -> None:
    """Modified UTF-8: two bytes for NUL, surrogate pairs for characters above 16 bits."""
    assert java_serialized(text.encode()).hex() == data.replace(" ", "")


def test_java_serialization_of_long_text() -> None:
    """A length above 65535 has eight bytes."""
    assert java_serialized(b"x" * 65535)[4:7] == b"t\xff\xff"
    assert java_serialized(b"x" * 65536)[4:13] == b"|" + (65536).to_bytes(8, "big")


def test_transforms_of_values_and_null() -> None:
    """A mask replaces NULL, a hash keeps it; truncation counts UTF-16 units; the key is unchanged."""
    rows = [image(1, "ann@x.org", "né" * 9, 7), image(2, "bob", None, None)]

    masked = inserted(compiled({"column.mask.with.3.chars": "shop.people.(note|mail)"}), *rows)
    hashed = inserted(compiled({f"column.mask.hash.v2.SHA-256.with.salt.{SALT}": "shop.people.(note|mail)"}), *rows)
    cut = inserted(compiled({"column.truncate.to.3.chars": "shop.people.(note|mail)"}), *rows)

    assert masked == [
        ({"id": 1}, {"id": 1, "mail": "***", "note": "***", "age": 7}),
        ({"id": 2}, {"id": 2, "mail": "***", "note": "***", "age": None}),
    ]
    digest = hasher(Hash("sha256", SALT.encode(), plain=True), None)
    of_note, ann, bob = (digest(text.encode()).decode() for text in ("né" * 9, "ann@x.org", "bob"))
    assert hashed[0][1] == {"id": 1, "mail": ann[:20], "note": of_note, "age": 7}
    assert hashed[1][1] == {"id": 2, "mail": bob[:20], "note": None, "age": None}
    assert cut == [
        ({"id": 1}, {"id": 1, "mail": "ann", "note": "nén", "age": 7}),
        ({"id": 2}, {"id": 2, "mail": "bob", "note": None, "age": None}),
    ]


def test_error_of_a_hashed_or_truncated_value_does_not_show_it() -> None:
    """Errors are in the log, whose readers may not know the value."""
    event = image(1, "secret", None, None).replace(b"secret", b"secre\xff")
    hashed, cut = f"column.mask.hash.v2.SHA-256.with.salt.{SALT}", "column.truncate.to.2.chars"
    for properties, shown in ({}, True), ({hashed: "shop.people.mail"}, False), ({cut: "shop.people.mail"}, False):
        codec = compiled(properties, replace(TABLE, columns=(ID, replace(MAIL, charset="gbk"), NOTE, AGE)))
        with pytest.raises(SchemaError, match=r"(?s)text is not valid gbk.*hint: convert the column") as caught:
            codec.inserts(event, 0, len(event), ENVELOPE)
        assert (b"secre".hex() in str(caught.value)) == shown
        assert caught.value.context["column"] == "mail"


def test_truncation_within_a_surrogate_pair() -> None:
    """As in Java, the first half remains."""
    codec = compiled({"column.truncate.to.2.chars": "shop.people.mail"})
    event = image(1, "a😀b", None, None) + image(2, 'a"😀', None, None) + image(3, "ab", None, None)

    values = [value for _, value in _pairs(codec.inserts(event, 0, len(event), ENVELOPE))]

    assert b'"mail":"a\\uD83D"' in values[0]
    assert b'"mail":"a\\""' in values[1]
    assert b'"mail":"ab"' in values[2]


def test_truncation_longer_than_the_column() -> None:
    """Has no effect; an ENUM counts as one character."""
    column = Column("e", "enum", nullable=False, charset="utf8mb4", enum_values=("small", "large"))
    table = Table(TABLE.id, (ID, column), ("id",))
    codec = compiled({"column.truncate.to.20.chars": ".*"}, table)

    assert inserted(codec, b"\0\1\0\0\0\2") == [({"id": 1}, {"id": 1, "e": "large"})]
    assert inserted(compiled({"column.truncate.to.20.chars": "shop.people.mail"}), image(1, "x" * 50, None, None)) == [
        ({"id": 1}, {"id": 1, "mail": "x" * 50, "note": None, "age": None})
    ]


def test_dropped_columns_are_skipped() -> None:
    """No row, SELECT or schema contains them; expressions match the whole name, in any case."""
    for properties in (
        {"column.exclude.list": "SHOP\\.People\\.(mail|AGE),shop.people.not"},
        {"column.include.list": "shop.people.id,shop.people.note"},
    ):
        codec = compiled(properties)

        assert codec.select_list == "`id`, `note`"
        assert [field.name for field in codec.schema.columns] == ["id", "note"]
        rows = [image(n, "m" * n, None if n % 2 else "x", n) for n in range(1, 80)]
        assert inserted(codec, *rows) == [({"id": n}, {"id": n, "note": None if n % 2 else "x"}) for n in range(1, 80)]


def test_select_and_binlog_agree_on_transformed_columns() -> None:
    """The packet of a result set and the row image give the same row."""
    properties = {"column.exclude.list": "shop.people.age", f"column.mask.hash.MD5.with.salt.{SALT}": ".*mail,.*note"}
    codec = compiled(properties)
    body = b"\x011" + b"\x05ann\xc3\xa9" + b"\x03n\xc3\xa9" + b"\x012" + b"\x03bob" + b"\xfb"
    parts = [body[:12], body[12:]]
    packets = b"".join(len(part).to_bytes(3, "little") + bytes([i]) + part for i, part in enumerate(parts))

    found = codec.snapshot(packets, 0, len(packets), SnapshotEnvelope(b',"op":"r"}'))

    selected = [(json.loads(key), json.loads(value)["after"]) for key, value in found.records]
    assert selected == inserted(codec, image(1, "anné", "né", 5), image(2, "bob", None, None))


def test_keys_have_the_original_values() -> None:
    """As in Debezium. The schema names no key, because such rows do not identify themselves."""
    codec = compiled({"column.mask.with.2.chars": "shop.people.mail"}, BY_MAIL)
    event = image(1, "a", None, None) + image(1, 'b"', None, None)

    assert inserted(codec, image(1, "a", None, None)) == [
        ({"mail": "a"}, {"id": 1, "mail": "**", "note": None, "age": None})
    ]
    assert codec.schema.key == ()
    [change] = codec.updates(event, 0, len(event), ENVELOPE).records
    assert isinstance(change, KeyChange)
    assert (change.old_key, change.new_key) == (b'{"mail":"a"}', b'{"mail":"b\\""}')
    assert json.loads(change.create)["after"]["mail"] == "**"
    assert (change.old_key_header, change.new_key_header) == (b'{"mail":"a"}', b'{"mail":"b\\""}')


def test_unchanged_updates_can_be_skipped() -> None:
    """Published rows are compared: dropped and masked columns do not count; other rows keep their numbers."""
    properties = {"column.exclude.list": "shop.people.age", "column.mask.with.2.chars": "shop.people.note"}
    pairs = [
        (image(1, "a", "x", 1), image(1, "a", "y", 2)),
        (image(2, "a", None, 1), image(2, "b", None, 1)),
        (image(3, "a", None, None), image(3, "a", None, None)),
        (image(4, "a", None, None), image(5, "a", None, None)),
    ]
    event = b"".join(before + after for before, after in pairs)

    all_of_them = compiled(properties).updates(event, 0, len(event), ENVELOPE, keys=True)
    rows = compiled(properties, skip_unchanged=True).updates(event, 0, len(event), ENVELOPE, keys=True)

    assert len(all_of_them.records) == 4
    assert rows.records == [all_of_them.records[1], all_of_them.records[3]]
    assert list(rows.row_index) == [1, 3]
    assert rows.keys == all_of_them.keys
    assert list(compiled(properties, skip_unchanged=True).updates(event, 0, len(event), ENVELOPE).row_index) == []


@pytest.mark.parametrize("key", ["json", "avro"])
@pytest.mark.parametrize("value", ["json-schema", "avro"])
def test_transforms_with_other_converters(key: Converter, value: Converter) -> None:
    """Rows are transformed and keys are not, for all combinations of converters."""
    properties = {"column.exclude.list": "shop.people.age", "column.mask.with.2.chars": "shop.people.(mail|note)"}
    projection = configured(properties).project(BY_MAIL.id, BY_MAIL.columns, BY_MAIL.key)
    assert projection is not None
    fields = {column.name: connect_field(column, SETTINGS) for column in projection.visible(BY_MAIL.columns)}
    record_format = RecordFormat(
        key=key,
        value=value,
        columns=tuple(fields.values()),
        key_schema=key_schema("t", [fields["mail"]]),
        value_schema=envelope_schema("t", tuple(fields.values())),
    )
    codec = TableCodec(BY_MAIL, "t", CodecOptions(SETTINGS, projection), record_format)
    rows = image(1, "ann", None, 3) + image(2, "b", "x", None)
    envelope = ENVELOPE._replace(
        before_row=b',"source":{"version":"1","connector":"c","name":"n","ts_ms":1,"snapshot":"false","db":"d","sequence":null,'
        b'"ts_us":1,"ts_ns":1,"table":"t","server_id":1,"gtid":null,"file":"f","pos":4,"row":',
        before_op=b',"thread":null,"query":null},"transaction":null,"op":"',
        after_op=b'","ts_ms":1,"ts_us":1,"ts_ns":1}',
    )

    found = _pairs(codec.inserts(rows, 0, len(rows), envelope))

    assert [b"ann" in each[0] for each in found] == [True, False]
    assert not any(b"ann" in each[1] for each in found)
    shown = {"json-schema": [b'{"id":1,"mail":"**","note":"**"}', b'{"id":2,"mail":"**","note":"**"}']}
    shown["avro"] = [b"\x02\x04**\x02\x04**", b"\x04\x04**\x02\x04**"]
    assert all(row in each[1] for row, each in zip(shown[value], found, strict=True))
    pair = image(1, "ann", None, 3) + image(1, "ann", "x", 4)
    assert len(codec.updates(pair, 0, len(pair), envelope).records) == 1
    changed_only = TableCodec(BY_MAIL, "t", CodecOptions(SETTINGS, projection, skip_unchanged=True), record_format)
    assert changed_only.updates(pair, 0, len(pair), envelope, keys=True).records == []
    moved = image(1, "ann", None, 3) + image(2, "ann", None, 3)
    assert (
        changed_only.updates(moved, 0, len(moved), envelope).records
        == codec.updates(moved, 0, len(moved), envelope).records
    )


def test_table_without_matching_rule_has_no_projection() -> None:
    """Its plan does not depend on rules for other tables."""
    found = configured({"column.exclude.list": "shop.other.*", "column.mask.with.2.chars": ".*secret"})

    assert found.project(TABLE.id, TABLE.columns, TABLE.key) is None
    assert configured({}).project(TABLE.id, TABLE.columns, TABLE.key) is None


def test_all_problems_of_a_table_are_reported() -> None:
    """By property, value and column, without the salt."""
    found = configured(
        {
            "column.exclude.list": "shop.people.id",
            "column.mask.with.3.chars": "shop.people.(age|mail)",
            f"column.mask.hash.v2.SHA-256.with.salt.{SALT}": "shop.people.(mail|note)",
            "datatype.propagate.source.type": "shop.people.TEXT",
        }
    )

    problems = found.problems(TABLE.id, TABLE.columns, TABLE.key)

    assert len(problems) == 4
    assert "column.exclude.list=shop.people.id drops shop.people.id" in problems[0]
    assert "message.key.columns" in problems[0]
    assert "shop.people.mail is matched by properties of which only one can apply" in problems[1]
    assert "column.mask.with.3.chars=shop.people.(age|mail)" in problems[1]
    assert "shop.people.note, and so does column.propagate.source.type" in problems[2]
    assert "matches shop.people.age, which is INT: only text can be masked" in problems[3]
    assert not any(SALT in problem for problem in problems)
    with pytest.raises(SchemaError, match=r"(?s)only text can be masked.*hint: correct the column properties, or"):
        found.project(TABLE.id, TABLE.columns, TABLE.key)


def test_rules_without_matching_column() -> None:
    """They are reported, because a name may be misspelled."""
    found = configured({"column.mask.with.3.chars": "shop.people.mial", "column.truncate.to.3.chars": ".*note"})

    assert found.unmatched([(TABLE.id, column) for column in TABLE.columns]) == [
        "column.mask.with.3.chars=shop.people.mial"
    ]


def test_salts_are_never_printed(tmp_path: Path) -> None:
    """Not in the effective configuration, its repr, or an error about a misspelled name."""
    good = f"column.mask.hash.SHA-256.with.salt.{SALT}"
    shown = config({good: "shop.people.mail", f"column.mask.hash.v2.md5.with.salt.{SALT}": "shop.people.note"})

    described = describe(shown)
    assert described["column.mask.hash.SHA-256.with.salt.********"] == "shop.people.mail"
    assert described["column.mask.hash.v2.md5.with.salt.********"] == "shop.people.note"
    assert SALT not in f"{described} {shown!r} {ColumnTransforms(shown.filters).project(*WHOLE)!r}"
    restored = pickle.loads(pickle.dumps(shown))  # noqa: S301
    assert ColumnTransforms(restored.filters).project(*WHOLE)
    for name in (f"column.mask.hash.SHA-7.with.salt.{SALT}", f"column.mask.hash.SHA-256.with.slat.{SALT}"):
        path = tmp_path / "twice.json"
        path.write_text(json.dumps(BASE)[:-1] + f', "{name}": "a", "{name}": "("}}')
        with pytest.raises(ConfigError) as caught:
            load(path, {})
        assert SALT not in str(caught.value)
        assert any("column.mask.hash.SHA-" in fault for fault in caught.value.problems)


@pytest.mark.parametrize("name", ["MD2", "sha-7", "SHA-256.x"])
def test_unknown_hash_algorithm_is_rejected(name: str) -> None:
    """The error lists the known algorithms."""
    with pytest.raises(InvalidExpressionError, match="not a known hash algorithm: use one of MD5"):
        read_rule(f"column.mask.hash.{name}.with.salt.x", "a.b.c")


def test_without_salt() -> None:
    """Removes the whole salt, and nothing else."""
    assert without_salt(f"column.mask.hash.v2.SHA-256.with.salt.{SALT}") == (
        "column.mask.hash.v2.SHA-256.with.salt.********"
    )
    assert without_salt("column.mask.with.3.chars") == "column.mask.with.3.chars"
