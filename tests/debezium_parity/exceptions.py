"""The named exceptions: every way in which Tailrace's records differ from Debezium's on purpose, each with its reason.

Where Debezium's snapshot and its streaming write one value in two forms, Tailrace writes the streaming form in both;
the exceptions that begin with ``snapshot`` are of this kind. Those that begin with ``DDL`` come from Debezium reading
the text of CREATE and ALTER while it streams, and the server's own SHOW CREATE TABLE in a snapshot: there Tailrace
writes the snapshot's form in both.
"""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from typing import Final

from tests.debezium_parity.compare import Difference, NamedException
from tests.debezium_parity.ddl_exceptions import of_length_zero, of_statement
from tests.debezium_parity.rows import CHANGES, HEARTBEATS, TRANSACTIONS
from tests.debezium_parity.tokens import Tree, member, read_tree

JAVA_READS_OTHERWISE: Final = frozenset(
    {
        *("armscii8", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp866", "cp932", "dec8", "eucjpms", "euckr"),
        *("gbk", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8u", "sjis", "swe7", "tis620", "ujis"),
    }
)
"""Character sets that Java and the server read in two ways, or that Java lacks."""
_KEYLESS: Final = frozenset({"k_none", "k_unique_null", "k_unique_inline"})
_ALTERED: Final = frozenset({"alters", "alters2", "altered", "alike", "again", "late_key", "ghost"})
"""Tables whose definition changes in the script."""
_FRACTION: Final = re.compile(r"(\.\d*?)0*(?=Z?$)")


def _strings(difference: Difference) -> tuple[str, str] | None:
    """Return both sides where both are strings, unescaped."""
    sides = [side for side in (difference.expected, difference.actual) if isinstance(side, str) and side[:1] == '"']
    if len(sides) < 2:
        return None
    expected, actual = map(json.loads, sides)
    return expected, actual


def _numbers(difference: Difference) -> tuple[Decimal, Decimal] | None:
    """Return both sides where both are numbers."""
    try:
        return Decimal(str(difference.expected)), Decimal(str(difference.actual))
    except ArithmeticError:
        return None


def _in_row(difference: Difference) -> bool:
    """Whether it is a value of a row, or of its key."""
    return difference.path[0] == "key" or difference.path[:2] in {("value", "before"), ("value", "after")}


def _in_snapshot(difference: Difference) -> bool:
    return difference.row.op == "r"


def _column(difference: Difference) -> str:
    """Return ``table.column`` of a row's value, with the twin table's suffix taken off."""
    name = difference.path[2] if difference.path[0] == "value" and len(difference.path) > 2 else difference.path[-1]
    return f"{difference.row.table.removesuffix('_new')}.{name}" if _in_row(difference) else ""


def _clock(difference: Difference) -> bool:
    return difference.row.table != TRANSACTIONS and difference.path in {
        ("value", "ts_ms"),
        ("value", "ts_us"),
        ("value", "ts_ns"),
    }


def _version(difference: Difference) -> bool:
    return difference.path == ("value", "source", "version")


def _prefix(difference: Difference) -> bool:
    return difference.path in {
        ("value", "source", "name"),
        ("key", "serverName"),
        ("header", "__debezium.context.connectorLogicalName"),
    }


def _run_id(difference: Difference) -> bool:
    return difference.path == ("header", "__debezium.context.runId")


def _own_headers(difference: Difference) -> bool:
    if difference.path != ("headers",):
        return False
    expected, actual = (re.findall(r"'([^']*)'", str(side)) for side in (difference.expected, difference.actual))
    return [name for name in actual if not name.startswith("tailrace.")] == expected


def _snapshot_place(difference: Difference) -> bool:
    return _in_snapshot(difference) and difference.path in {
        ("value", "source", name) for name in ("ts_ms", "ts_us", "ts_ns", "file", "pos")
    }


def _snapshot_marker(difference: Difference) -> bool:
    return _in_snapshot(difference) and difference.path == ("value", "source", "snapshot")


def _without_key(difference: Difference) -> bool:
    if difference.row.table == TRANSACTIONS:
        counted = member(difference.row.value or "", "data_collections")
        tables = [str(member(each, "data_collection")) for each in counted] if isinstance(counted, list) else []
        touched = any(table.strip('"').rpartition(".")[2] in _KEYLESS for table in tables)
        return touched and difference.path[-1] == "event_count"
    if difference.path == ("value", "transaction", "total_order"):
        # A row of a transaction that changed a table without key before it.
        sides = _numbers(difference)
        return difference.row.table == "ops" and sides is not None and sides[1] - sides[0] == 1
    if difference.row.table in _KEYLESS and difference.path[:2] == ("value", "transaction"):
        return True
    return difference.row.table in _KEYLESS and difference.path[0] in {"key", "partition", "record", "headers"}


def _zero_date_default(difference: Difference) -> bool:
    return _column(difference) in {"zero_dates.dd", "zero_dates.dtd"}


def _schema(difference: Difference, *pairs: tuple[str, str]) -> bool:
    """Whether a column's schema differs in its type alone, as one of ``pairs`` (expected, actual) says."""
    types = tuple(member(side, "type") if isinstance(side, tuple) else None for side in difference[2:])
    return difference.path[0] == "schema" and types in {(f'"{one}"', f'"{other}"') for one, other in pairs}


def _null_kept(difference: Difference) -> bool:
    with_defaults = ("defaults", "more_defaults", "hidden")
    return _in_row(difference) and difference.actual == "null" and difference.row.table.startswith(with_defaults)


def _snapshot_timestamp(difference: Difference) -> bool:
    sides = _strings(difference)
    if sides is None or not _in_row(difference) or not _in_snapshot(difference):
        return False
    expected, actual = (_FRACTION.sub(lambda found: found[1].rstrip("."), side) for side in sides)
    return bool(re.match(r"\d{4}-\d\d-\d\dT", actual)) and expected == actual


def _snapshot_float(difference: Difference) -> bool:
    sides = _numbers(difference)
    if sides is None or not _in_row(difference) or not _in_snapshot(difference):
        return False
    # The server rounds the float itself, not its shortest text.
    exact = struct.unpack("f", struct.pack("f", float(sides[1])))[0]
    return difference.row.table == "floats" and sides[0] == Decimal(f"{exact:.5e}")


def _snapshot_document(difference: Difference) -> bool:
    sides = _strings(difference)
    documents = difference.row.table.startswith("json") or _column(difference) in {
        "more_defaults.gv",
        "more_defaults.xj",
    }
    if sides is None or not _in_snapshot(difference) or not documents:
        return False
    expected, actual = (_loose(json.loads(side)) for side in sides)
    return expected == actual


def _document_scalar(difference: Difference) -> bool:
    sides = _strings(difference)
    if sides is None or not _in_row(difference) or not difference.row.table.startswith("json"):
        return False
    expected, actual = map(read_tree, sides)
    return _alike(expected, actual)


def _alike(expected: Tree, actual: Tree) -> bool:
    """Whether two documents differ only in how a double, the fraction of a time, or an opaque value is printed."""
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        names = [[name for name, _ in side] for side in (expected, actual)]
        return names[0] == names[1] and all(
            _alike(left, right) for (_, left), (_, right) in zip(expected, actual, strict=True)
        )
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_alike, expected, actual))
    if isinstance(expected, str) and isinstance(actual, str):
        kinds = [json.loads(side) for side in (expected, actual)]
        if all(isinstance(each, str) for each in kinds):
            return expected == actual or _loose(kinds[0]) == _loose(kinds[1])
        return expected == actual or _same_double(expected, actual)
    return False


def _same_double(expected: str, actual: str) -> bool:
    """Whether both are numbers, at least one printed as a double, and of one value."""
    texts = (expected, actual)
    return (
        all(text[0] in "-0123456789" for text in texts)
        and any(not text.lstrip("-").isdigit() for text in texts)
        and float(expected) == float(actual)
    )


def _loose(document: object) -> object:
    """Return a document with the fractions of times and the marks of opaque values made alike."""
    if isinstance(document, dict):
        return {name: _loose(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_loose(value) for value in document]
    if isinstance(document, str):
        if re.fullmatch(r"[-0-9 :.]+", document):
            return _FRACTION.sub(lambda found: found[1].rstrip("."), document)
        return re.sub(r"^base64:type\d+:", "", document)
    return document


def _snapshot_julian(difference: Difference) -> bool:
    if not _in_snapshot(difference) or not _column(difference).startswith("temporals.dt"):
        return False
    sides, texts = _numbers(difference), _strings(difference)
    return (texts is not None and texts[0] == texts[1].replace("1582-10-10", "1582-10-20")) or (
        sides is not None and abs(sides[0] - sides[1]) in {Decimal(864_000 * 10**n) for n in (3, 6, 9)}
    )


def _charset(difference: Difference) -> bool:
    """Whether a streamed text differs in a character set that Java reads in another way than the server."""
    table, _, column = _column(difference).partition(".")
    name = column.partition("_")[2]
    return table.startswith("charset") and not _in_snapshot(difference) and name in JAVA_READS_OTHERWISE


def _undefined_byte(difference: Difference) -> bool:
    sides = _strings(difference)
    return sides is not None and _column(difference).endswith("_latin1") and "\ufffd" in sides[0]


def _enum_escape(difference: Difference) -> bool:
    sides = _strings(difference)
    return (
        sides is not None
        and _column(difference) == "enums.e"
        and sides[0] == sides[1].replace("\\", "\\\\").replace(",", "\\,")
    )


def _negative_time_in_document(difference: Difference) -> bool:
    sides = _strings(difference)
    return (
        sides is not None
        and difference.row.table.startswith("json")
        and sides[1] == sides[0].replace("24:0-25:0-26.00000-12", "-23:24:25.120000")
    )


def _year_zero(difference: Difference) -> bool:
    return _in_row(difference) and {difference.expected, difference.actual} == {"1900", "2000"}


def _java_number(difference: Difference) -> bool:
    sides = _numbers(difference)
    if sides is None or not _column(difference).startswith("floats."):
        return False
    expected, actual = (struct.pack("f", float(side)) for side in sides)
    return expected == actual and len(str(difference.actual)) <= len(str(difference.expected))


def _scaled_float(difference: Difference) -> bool:
    if _schema(difference, ("double", "float")):
        return difference.row.table.removesuffix("_new") == "floats_scaled" or difference.path[1] == "fs"
    sides = _numbers(difference)
    if sides is None or not (_column(difference).startswith("floats_scaled.") or _column(difference) == "defaults.fs"):
        return False
    return struct.pack("f", float(sides[0])) == struct.pack("f", float(sides[1]))


def _time_of_no_day(difference: Difference) -> bool:
    if not re.fullmatch(r"temporals\.t\d|defaults\.t3", _column(difference)):
        return False
    return difference.expected == "null" or (difference.expected, difference.actual) == ('"00:00:00Z"', '"24:00:00Z"')


def _key_with_prefix(difference: Difference) -> bool:
    if difference.row.table in {CHANGES, TRANSACTIONS, HEARTBEATS}:
        return False
    return difference.path in {("partition",), ("order",)} and (difference.row.record.key or b"").startswith(
        b'{"schema":'
    )


def _default_gone(difference: Difference) -> bool:
    """Whether a column's schema is the same but for the default that only Debezium has, or that is older there."""
    if difference.path[0] != "schema" or not isinstance(difference.expected, tuple):
        return False
    if difference.row.table not in _ALTERED or not isinstance(difference.actual, tuple):
        return False
    return _but_default(difference.expected) == _but_default(difference.actual)


_LITERALS: Final = frozenset(
    {("defaults", "v"), ("defaults", "bin"), *(("more_defaults", name) for name in ("b8", "b16", "dm"))}
)


def _default_literal(difference: Difference) -> bool:
    """Whether a default is the same once read as SQL, a binary one's once padded, a number's once rounded."""
    sides = difference.expected, difference.actual
    if difference.path[0] != "schema" or not all(isinstance(side, tuple) for side in sides):
        return False
    if (difference.row.table.removesuffix("_new"), difference.path[1]) not in _LITERALS:
        return False
    return _but_default(sides[0]) == _but_default(sides[1])


def _but_default(schema: Tree | None) -> list[tuple[str, Tree]]:
    assert isinstance(schema, tuple)
    return [each for each in schema if each[0] not in {'"default"', '"doc"'}]


def _no_key_at_all(difference: Difference) -> bool:
    return difference.path == ("partition",) and difference.row.op == "t"


def _row_of_statement(difference: Difference) -> bool:
    return difference.row.op == "ddl" and difference.path == ("value", "source", "row") and difference.actual == "0"


_WORDS: Final = frozenset(
    {"typeName", "typeExpression", "jdbcType", "length", "scale", "charsetName", "defaultValueExpression"}
)


def _changed_table(difference: Difference) -> str:
    """Return the table whose definition in a streamed schema change differs, or an empty text."""
    if difference.row.op != "ddl" or difference.path[:2] != ("value", "tableChanges"):
        return ""
    changes = member(difference.row.value or "", "tableChanges")
    name = member(changes[int(difference.path[2])], "id") if isinstance(changes, list) else ""
    return json.loads(str(name)).rpartition('."')[2].strip('"') if difference.path[3:4] == ("table",) else ""


def _as_of_reading(difference: Difference) -> bool:
    return _changed_table(difference) in _ALTERED


def _in_words_of_server(difference: Difference) -> bool:
    return bool(_changed_table(difference)) and difference.path[-1] in _WORDS


def _snapshot_flag(difference: Difference) -> bool:
    return difference.path == ("value", "source", "snapshot") and (difference.expected, difference.actual) == (
        "null",
        '"false"',
    )


def _doc_of_field(difference: Difference) -> bool:
    if difference.path[0] != "avro" or not isinstance(difference.actual, tuple):
        return False
    return difference.expected == tuple(each for each in difference.actual if each[0] != '"doc"')


def _ddl_boolean(difference: Difference) -> bool:
    if _schema(difference, ("boolean", "int16")):
        return difference.row.table.endswith(("_new", "inline_key"))
    return _in_row(difference) and (difference.expected, difference.actual) in {("true", "1"), ("false", "0")}


def _ddl_real(difference: Difference) -> bool:
    if _schema(difference, ("float", "double")):
        return difference.row.table.endswith(("_new", "inline_key")) and difference.path[1] == "r"
    sides = _numbers(difference)
    if sides is None or not difference.row.table.endswith("_new") or not _column(difference).endswith(".r"):
        return False
    expected, actual = (struct.pack("f", float(side)) for side in sides)
    return expected == actual


def _ddl_float4(difference: Difference) -> bool:
    if difference.row.table != "synonyms_new" or difference.path[-1] != "f4":
        return False
    return _schema(difference, ("double", "float")) or (_in_row(difference) and difference.expected == "null")


def _ddl_binary(difference: Difference) -> bool:
    if _schema(difference, ("string", "bytes")):
        return difference.row.table.endswith(("_new", "inline_key"))
    return _column(difference) in {"inline_key.cb", "binaries.cb", "binaries.b1", "binaries.vcb", "binaries.txb"} and (
        difference.row.table.endswith(("_new", "inline_key"))
    )


EXCEPTIONS: Final = (
    NamedException("processing time", "ts_ms, ts_us, ts_ns of an envelope are each connector's own clock", _clock),
    NamedException("version", "source.version tells who wrote the record", _version),
    NamedException("prefix", "the two run under two prefixes", _prefix),
    NamedException("run id", "the header names one start of one connector", _run_id),
    NamedException(
        "own headers", "tailrace.* headers stand beside Debezium's; other tools need not know", _own_headers
    ),
    NamedException(
        "snapshot position",
        "a row of the snapshot carries the position and time at which its own split was read: there is no one lock",
        _snapshot_place,
    ),
    NamedException(
        "snapshot marker",
        "splits are read in parallel, so that none is known to be the first or the last: every row says true",
        _snapshot_marker,
    ),
    NamedException(
        "table without key",
        "every column is the key (tailrace.tables.without.key=full-row), where Debezium writes none; "
        "an update that changes it is a delete and an insert, and counts as two in its transaction",
        _without_key,
    ),
    NamedException(
        "null kept",
        "NULL in a nullable column with a default stays null; Connect's converter writes the default in its place",
        _null_kept,
    ),
    NamedException(
        "zero date",
        "a zero date in a NOT NULL column is the epoch; Debezium writes the column's default where there is one, "
        "which nothing in the log tells",
        _zero_date_default,
    ),
    NamedException(
        "snapshot timestamp", "the fraction has all digits of the column, not the trimmed ones", _snapshot_timestamp
    ),
    NamedException("snapshot float", "FLOAT is exact; Debezium's snapshot reads a text of six digits", _snapshot_float),
    NamedException(
        "snapshot document",
        "JSON is rebuilt from its binary form, compact; Debezium's snapshot passes the server's text on",
        _snapshot_document,
    ),
    NamedException(
        "snapshot calendar",
        "days that the Julian calendar skipped stay what they are; Debezium's snapshot moves them by ten days",
        _snapshot_julian,
    ),
    NamedException(
        "character set",
        "text is what the server reads in its bytes; while streaming, Debezium reads them as Java does, which has some "
        f"sets otherwise ({', '.join(sorted(JAVA_READS_OTHERWISE))}), and others not at all",
        _charset,
    ),
    NamedException(
        "undefined byte",
        "bytes that Windows-1252 leaves open are kept as the server sees them; Debezium loses them while streaming",
        _undefined_byte,
    ),
    NamedException(
        "enum escape",
        "labels are the server's own; Debezium escapes comma and backslash while streaming and not in a snapshot",
        _enum_escape,
    ),
    NamedException(
        "document scalars",
        "a double within JSON is printed as the server prints it, a time has six digits, a binary value its type: "
        "a SELECT must give the same bytes as the log, and does not tell more",
        _document_scalar,
    ),
    NamedException(
        "negative time in JSON",
        "Debezium prints a negative TIME within a JSON document as 24:0-25:0-26.00000-12; it is -23:24:25.120000",
        _negative_time_in_document,
    ),
    NamedException(
        "year 0000", "Debezium writes 1900 while streaming and 2000 in a snapshot; 2000 is written", _year_zero
    ),
    NamedException(
        "float digits",
        "a float is printed in the fewest digits that give it back; Java before 19 prints one more for a few",
        _java_number,
    ),
    NamedException(
        "FLOAT(M,D)",
        "the log does not tell FLOAT(M,D) from FLOAT: it is the same 32-bit number, printed shorter",
        _scaled_float,
    ),
    NamedException(
        "time of no day",
        "a TIME below 00:00 or above 24:00 stays what it is in modes connect and isostring; Debezium loses it",
        _time_of_no_day,
    ),
    NamedException(
        "snapshot flag",
        "source.snapshot is always written; with replace.null.with.default=false Connect writes null for false",
        _snapshot_flag,
    ),
    NamedException(
        "key with schema",
        "the prefix is part of a key with its schema, and so decides its partition; order holds within a partition",
        _key_with_prefix,
    ),
    NamedException(
        "default of an altered table",
        "the log tells neither defaults nor comments: a version that the catalog no longer has is published without",
        _default_gone,
    ),
    NamedException(
        "default literal",
        "a default is the value that the server inserts; Debezium keeps the escapes of its SQL literal, pads a "
        "BINARY in another way in each of its two paths, loses that of a BIT which is written as a number or in hex, "
        "and does not round to the digits of a DOUBLE(M,D)",
        _default_literal,
    ),
    NamedException(
        "no key at all", "a truncate record has no key: each producer puts it in any partition", _no_key_at_all
    ),
    NamedException(
        "row of a statement",
        "a statement has no row, so that source.row is 0; Debezium leaves the number of the last row before it",
        _row_of_statement,
    ),
    NamedException(
        "definition as of reading",
        "what a table is like after a statement, the catalog says when the statement is read: where others have "
        "followed, their effect is in it",
        _as_of_reading,
    ),
    NamedException(
        "definition in the server's words",
        "types, sizes and defaults of a schema change are those of SHOW CREATE TABLE, as in Debezium's snapshot; "
        "while streaming Debezium has the words of the statement",
        _in_words_of_server,
    ),
    NamedException(
        "DDL words",
        "source types and lengths that rules of columns put into schemas are those of SHOW CREATE TABLE",
        of_statement,
    ),
    NamedException(
        "DDL length",
        "TIMESTAMP(0) has no length as the server keeps it, so that column.truncate cuts its text; while streaming "
        "Debezium takes it for shorter than the cut",
        of_length_zero,
    ),
    NamedException(
        "doc of a field",
        "an Avro field carries the doc of its schema, as Confluent's converter writes it; Apicurio's, which runs here, "
        "has it in connect.doc alone",
        _doc_of_field,
    ),
    NamedException("DDL boolean", "BOOLEAN is TINYINT(1) as the server keeps it, a number", _ddl_boolean),
    NamedException("DDL real", "REAL is DOUBLE as the server keeps it", _ddl_real),
    NamedException("DDL float4", "FLOAT4 is FLOAT as the server keeps it; Debezium loses its values", _ddl_float4),
    NamedException("DDL binary", "CHAR BYTE and CHARACTER SET binary are BINARY as the server keeps it", _ddl_binary),
)
"""In the order in which they are tried."""

QUIET: Final = frozenset({"processing time", "version", "prefix", "run id", "own headers"})
"""Those that every record has; a record with these alone counts as equal."""
