"""The server and Spark make the same canonical text of every value that the producer writes and the consumer reads."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from pyspark.sql import functions as fn

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.model.protocols import NotComparedError
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.types.canonical import canonical_text as server_text
from tailrace.spark_consumer import decode, latest
from tailrace.spark_consumer.small_data import with_settings
from tailrace.spark_consumer.verify.target import canonical_text
from tests.embedded.kafka import KafkaBroker
from tests.support.capture import CaptureThread, configured, eventually, properties, records_of
from tests.support.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.mysql import MySqlServer

Texts = dict[int, dict[str, Any]]
"""Row to column to text."""

TYPES: Final = {
    "ti": "TINYINT",
    "tu": "TINYINT UNSIGNED ZEROFILL",
    "su": "SMALLINT UNSIGNED NOT NULL",
    "mi": "MEDIUMINT",
    "iu": "INT UNSIGNED",
    "bi": "BIGINT",
    "bu": "BIGINT UNSIGNED",
    "d0": "DECIMAL(30,0)",
    "d2": "DECIMAL(12,2)",
    "d38": "DECIMAL(38,30)",
    "dz": "DECIMAL(12,2) ZEROFILL",
    "f": "FLOAT",
    "fs": "FLOAT(7,3)",
    "db": "DOUBLE",
    "dd": "DOUBLE(15,4)",
    "b1": "BIT(1)",
    "b9": "BIT(9)",
    "b64": "BIT(64)",
    "c": "CHAR(10)",
    "cl": "VARCHAR(20) CHARACTER SET latin1",
    "cg": "VARCHAR(20) CHARACTER SET gbk",
    "cu": "VARCHAR(20) CHARACTER SET utf16",
    "v": "VARCHAR(300)",
    "lt": "LONGTEXT",
    "bn": "BINARY(6)",
    "vb": "VARBINARY(20)",
    "lb": "LONGBLOB",
    "e": "ENUM('a','ü, ''x''','')",
    "s": "SET('a','b','ü')",
    "dt": "DATE",
    "dn": "DATE NOT NULL",
    "t0": "DATETIME",
    "t3": "DATETIME(3)",
    "t6": "DATETIME(6)",
    "tn": "DATETIME(6) NOT NULL",
    "ts": "TIMESTAMP NULL",
    "ts6": "TIMESTAMP(6) NULL",
    "tz": "TIMESTAMP(2) NOT NULL DEFAULT '2000-01-01'",
    "tm": "TIME",
    "tm6": "TIME(6)",
    "y": "YEAR",
    "g": "GEOMETRY",
    "p": "POINT",
    "j": "JSON",
}

EXTREMES: Final[Mapping[str, list[object]]] = {
    "ti": [-128, 127, 0],
    "tu": [0, 7, 255],
    "su": [0, 65535, 1],
    "mi": [-(2**23), 2**23 - 1],
    "iu": [0, 2**32 - 1],
    "bi": [-(2**63), 2**63 - 1, 0],
    "bu": [0, 2**63 - 1, 2**63, 2**64 - 1],
    "d0": ["0", "100", "-1000000", "9" * 30, "-" + "9" * 30],
    "d2": ["0.00", "-0.01", "10.00", "10.50", "9999999999.99", "-9999999999.99", "-100.00"],
    "d38": ["0", "0." + "0" * 29 + "1", "-0.0000001", "99999999." + "9" * 30, "1e-8"],
    "dz": ["0.00", "1.50", "9999999999.99"],
    "f": [0.0, "-0.0", 0.1, 3.4e38, 1.17549435e-38, 1e-45, -16777216, 1.5],
    "fs": [0, 1.123, -9999.999, 0.001],
    "db": [0.0, "-0e0", 0.1, 1 / 3, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 1e22, -(2.0**53), 2e-3],
    "dd": [0.0001, -12345678901.1234, 3.3333],
    "b1": [0, 1],
    "b9": [0, 1, 256, 511],
    "b64": [0, 1, 2**63, 2**64 - 1],
    "c": ["", "  a", "a  ", "Ü€", "x" * 10],
    "cl": ["", "é€", "a ", "\u0081"],
    "cg": ["", "中文", "a "],
    "cu": ["", "中𐍈", "a "],
    "v": ["", " ", "a ", "A", "a", "𐍈" * 300, '\0\n"\\', "ß"],
    "lt": ["", "a", "ü" * 5000, "\u007f\u2028"],
    "bn": [b"", b"a", b"\0\0", b"abcdef", b"a\0"],
    "vb": [b"", b"\0", b"\xff\xfe", b" "],
    "lb": [b"", b"\0" * 3000, bytes(range(256)) * 20],
    "e": ["a", "ü, 'x'", ""],
    "s": ["", "a", "a,ü", "a,b,ü"],
    "dt": [
        "0001-01-01",
        "0099-12-31",
        "0100-01-01",
        "1582-10-10",
        "9999-12-31",
        "0000-00-00",
        "2020-00-15",
        "0070-02-28",
    ],
    "dn": ["0000-00-00", "2024-02-29", "1969-12-31", "0069-03-01"],
    "t0": ["1000-01-01 00:00:00", "9999-12-31 23:59:59", "0000-00-00 00:00:00", "1969-12-31 23:59:59"],
    "t3": ["1969-12-31 23:59:59.999", "2024-02-29 12:00:00.100", "0001-01-01 00:00:00.001"],
    "t6": [
        "1969-12-31 23:59:59.999999",
        "9999-12-31 23:59:59.999999",
        "2024-02-29 12:00:00.000001",
        "0050-01-01 01:01:01",
    ],
    "tn": ["0000-00-00 00:00:00", "2000-01-01 00:00:00.5", "2020-01-00 10:10:10"],
    "ts": ["1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00"],
    "ts6": ["1970-01-01 00:00:01.000001", "2038-01-19 03:14:07.999999"],
    "tz": ["0000-00-00 00:00:00", "2001-09-09 01:46:40.25"],
    "tm": ["00:00:00", "-838:59:59", "838:59:59", "-00:00:01", "23:59:59"],
    "tm6": ["-00:00:00.000001", "00:00:00.000001", "-837:59:59.999999", "24:00:00", "12:34:56.7"],
    "y": [0, 1901, 2155],
    "j": ['{"a": [1, 2.50, "x y"]}', "null"],
}


_LAST: Final = 1000

INEXACT: Final[Mapping[str, list[object]]] = {
    "dt": ["2020-02-30", "0069-02-31"],
    "t0": ["2021-02-29 01:02:03"],
    "t6": ["2020-04-31 01:02:03.000004", "2262-04-11 23:47:16.854775", "2262-04-11 23:47:16.854776"],
    "t3": ["1677-09-21 00:12:43.145", "1677-09-21 00:12:43.146"],
}
"""Values that ``event.converting.failure.handling.mode=warn`` writes as NULL, in some modes."""


def _random(rng: random.Random, name: str) -> object:
    """Return a value of a column that is none of the extremes, mostly."""
    text = "".join(chr(rng.choice((0x20, 0x41, 0xE9, 0x4E2D))) for _ in range(rng.randrange(10)))
    if name in {"c", "v", "lt", "cu"}:
        return text
    if name in {"bn", "vb", "lb"}:
        return rng.randbytes(rng.randrange(7))
    if name == "db":
        bits = struct.unpack("<d", rng.randbytes(8))[0]
        return bits if abs(bits) < 1e308 else rng.random()
    if name == "f":
        return rng.uniform(-1, 1) * 10 ** rng.randrange(-30, 30)
    if name in {"d0", "d2", "d38"}:
        whole, scale = {"d0": (30, 0), "d2": (10, 2), "d38": (8, 30)}[name]
        sign, digits = rng.choice(("", "-")), str(rng.randrange(10 ** rng.randrange(1, whole + 1)))
        return f"{sign}{digits}.{rng.randrange(10**scale):0{scale}d}" if scale else sign + digits
    if name in {"t6", "t0", "t3"}:
        day = f"{rng.randrange(1, 9999):04d}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
        return f"{day} 01:02:{rng.randrange(60):02d}.{rng.randrange(10**6):06d}"
    if name == "bi":
        return rng.randrange(-(2**63), 2**63)
    return rng.choice(EXTREMES[name]) if name in EXTREMES else None


def _rows(seed: int, count: int, *, inexact: bool) -> Iterator[dict[str, object]]:
    """Yield rows: every extreme once, NULLs, then random values."""
    rng = random.Random(seed)
    extremes = {name: values + INEXACT.get(name, []) if inexact else values for name, values in EXTREMES.items()}
    longest = max(map(len, extremes.values()))
    for number in range(longest + count):
        row: dict[str, object] = {}
        for name, declared in TYPES.items():
            values = extremes.get(name)
            if values and number < longest:
                row[name] = values[number % len(values)]
            elif rng.random() < 0.2 and "NOT NULL" not in declared:
                row[name] = None
            else:
                row[name] = _random(rng, name)
        yield row


def _fill(database: Database, rows: list[dict[str, object]]) -> None:
    columns = ", ".join(f"{name} {declared}" for name, declared in TYPES.items())
    database.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
    names = [name for name in TYPES if name not in {"g", "p"}]
    for number, row in enumerate(rows):
        values = {
            name: int(str(row[name])) if name in {"b1", "b9", "b64"} and row[name] is not None else row[name]
            for name in names
        }
        marks = ", ".join("%s" for _ in names)
        shapes = ("NULL, NULL", "POINT(1, -2.5), POINT(0, 1)", "ST_GeomFromText('LINESTRING(0 0,1 1)', 4326), NULL")
        database.execute(
            f"INSERT INTO t (id, {', '.join(names)}, g, p) VALUES ({number}, {marks}, {shapes[number % 3]})",
            list(values.values()),
        )


def _is_written(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    """Return whether the topic has the last row."""
    records = records_of(broker.bootstrap, prefix, database.name, "t")
    return any(each.value is not None and each.json["after"]["id"] == _LAST for each in records)


def _compared(
    spark: SparkSession, database: Database, broker: KafkaBroker, prefix: str, *, options: dict[str, str], count: int
) -> tuple[Texts, Texts, dict[str, str]]:
    """Return the texts of the server and of Spark, by id, and the columns that are not compared."""
    settings = properties(database.server, broker, prefix, database.name, options)
    inexact = options.get("event.converting.failure.handling.mode") == "warn"
    _fill(database, list(_rows(1, count, inexact=inexact)))
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET ti = ti + 1 WHERE id % 2 AND ti < 100")  # these come from the binlog
        database.execute("INSERT INTO t (id, bi) VALUES (%s, 5)", (_LAST,))
        eventually(lambda: _is_written(broker, prefix, database), "the last change")
    config = configured(settings)
    texts, excluded = {}, {}
    with closing(mysql_source(config).connect()) as session, session.cursor() as cursor:
        described = mysql_source(config).open_snapshot_session()
        try:
            table = described.describe(TableId(database.name, "t")).table
        finally:
            described.close()
        for column in table.columns:
            try:
                texts[column.name] = server_text(column, config.values.options)
            except NotComparedError as reason:
                excluded[column.name] = str(reason)
        cursor.execute(f"SELECT id, {', '.join(each.sql for each in texts.values())} FROM {database.name}.t")
        server = {row[0]: dict(zip(texts, row[1:], strict=True)) for row in cursor.fetchall()}
    client = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": f"{prefix}.{database.name}.t"}
    topic = client["subscribe"]
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}):
        records = spark.read.format("kafka").options(**client, includeHeaders="true").load()
        rows = latest(decode(records, topic, prefix=prefix, bootstrap_servers=broker.bootstrap)).select("after.*")
        kinds = {field.name: field.dataType for field in rows.schema}
        columns = {}
        for name, each in texts.items():
            text = canonical_text(fn.col(name), each.form, kinds[name])
            assert text is not None, name
            columns[name] = text
        found = rows.select(fn.col("id").alias("_id"), *(each.alias(name) for name, each in columns.items())).collect()
    return server, {row["_id"]: {name: row[name] for name in texts} for row in found}, excluded


def _different(server: Texts, target: Texts) -> dict[tuple[int, str], tuple[Any, Any]]:
    """Return the texts that differ, by row and column."""
    return {
        (number, name): (text, target[number][name])
        for number, row in server.items()
        for name, text in row.items()
        if text != target[number][name]
    }


@pytest.mark.timeout(900)
def test_texts_are_equal(spark: SparkSession, database: Database, kafka_broker: KafkaBroker, prefix: str) -> None:
    server, target, excluded = _compared(spark, database, kafka_broker, prefix, options={}, count=40)

    assert set(excluded) == {"j"}
    assert not _different(server, target)
    assert set(server) == set(target)
    assert not [text for row in server.values() for text in row.values() if text is None or "," in text]
    for name in set(TYPES) - {"b1", "g", "j", "p"}:
        assert len({row[name] for row in server.values()}) > 1, name


MODES: Final = (
    {
        "time.precision.mode": "connect",
        "decimal.handling.mode": "string",
        "bigint.unsigned.handling.mode": "precise",
        "binary.handling.mode": "hex",
        "enable.time.adjuster": "false",
        "event.converting.failure.handling.mode": "warn",
    },
    {
        "time.precision.mode": "isostring",
        "decimal.handling.mode": "double",
        "event.converting.failure.handling.mode": "warn",
    },
    {"time.precision.mode": "microseconds", "binary.handling.mode": "base64"},
    {"time.precision.mode": "nanoseconds", "event.converting.failure.handling.mode": "warn"},
)
EXCLUDED: Final = {"isostring": {"j", "tm", "tm6"}, "microseconds": {"bn", "j", "lb", "vb"}}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("modes", MODES, ids=lambda modes: modes["time.precision.mode"])
def test_texts_are_equal_in_every_mode(
    spark: SparkSession, database: Database, kafka_broker: KafkaBroker, prefix: str, modes: dict[str, str]
) -> None:
    server, target, excluded = _compared(spark, database, kafka_broker, prefix, options=modes, count=20)

    assert set(excluded) == EXCLUDED.get(modes["time.precision.mode"], {"j"})

    assert not _different(server, target)


@pytest.mark.long
@pytest.mark.mariadb
@pytest.mark.timeout(900)
def test_texts_of_mariadb_are_equal(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str) -> None:
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(settings=SOURCE) as running:
        database = Database(cast("MySqlServer", running), f"d_{prefix}")
        connector = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}
        server, target, _ = _compared(spark, database, kafka_broker, prefix, options=connector, count=20)

    assert not _different(server, target)
