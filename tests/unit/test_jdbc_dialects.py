"""The dialects of the JDBC sink: their types, as docs/sinks/jdbc.md shows them, and the settings of a connection."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import types as tp
from structlog.testing import capture_logs

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.spark_consumer import config, session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.errors import SinkError, TargetUnavailableError, concerns_all_tables
from tailrace.spark_consumer.sink.jdbc_columns import sequence_bytes
from tailrace.spark_consumer.sink.jdbc_dialect import Dialect, Role, load_dialect
from tailrace.spark_consumer.sink.jdbc_session import PLACEHOLDER, JdbcOptions, connection_properties

ROOT: Final = Path(__file__).resolve().parents[2]
POSTGRES, MYSQL = "jdbc:postgresql://host/db", "jdbc:mysql://host/db"
SETTINGS: Final = {
    "bootstrap.servers": "broker:9092",
    "topic.prefix": "shop",
    "checkpointLocation": "/c",
    "sink": "jdbc",
    "sink.url": POSTGRES,
}


SHOWN: Final[tuple[tuple[tp.DataType, Role], ...]] = (
    (tp.BooleanType(), Role.VALUE),
    (tp.ShortType(), Role.VALUE),
    (tp.IntegerType(), Role.VALUE),
    (tp.LongType(), Role.VALUE),
    (tp.DecimalType(20, 0), Role.VALUE),
    (tp.DecimalType(38, 10), Role.VALUE),
    (tp.FloatType(), Role.VALUE),
    (tp.DoubleType(), Role.VALUE),
    (tp.StringType(), Role.VALUE),
    (tp.StringType(), Role.KEY),
    (tp.StringType(), Role.JSON),
    (tp.BinaryType(), Role.VALUE),
    (tp.BinaryType(), Role.KEY),
    (tp.DateType(), Role.VALUE),
    (tp.TimestampNTZType(), Role.VALUE),
    (tp.TimestampType(), Role.VALUE),
)


def type_table(*dialects: Dialect) -> list[tuple[str, ...]]:
    """Return the rows of the table of types: the Spark type, and the type in each dialect."""
    rows = []
    for kind, role in SHOWN:
        name = kind.simpleString() + (f" ({role.value})" if role is not Role.VALUE else "")
        rows.append((name, *(dialect.column_type(kind, role) for dialect in dialects)))
    return [*rows, (SEQUENCE_COLUMN, *(dialect.sequence_type for dialect in dialects))]


def test_types_are_those_of_the_documentation() -> None:
    rows = type_table(load_dialect(POSTGRES), load_dialect(MYSQL))
    printed = "\n".join(f"| {' | '.join(f'`{cell}`' for cell in row)} |" for row in rows)

    assert printed in (ROOT / "docs" / "sinks" / "jdbc.md").read_text(encoding="utf-8"), printed


@pytest.mark.parametrize("url", [POSTGRES, MYSQL])
def test_every_type_of_a_captured_column_has_one_in_the_database(url: str) -> None:
    kinds = (tp.BooleanType(), tp.ShortType(), tp.IntegerType(), tp.LongType(), tp.FloatType(), tp.DoubleType())
    more = (tp.StringType(), tp.BinaryType(), tp.DateType(), tp.TimestampType(), tp.TimestampNTZType())
    dialect = load_dialect(url)

    assert all(dialect.column_type(kind, role) for kind in (*kinds, *more) for role in (Role.VALUE, Role.KEY))
    with pytest.raises(SinkError, match=r"no type for interval(?s:.*)hint: cast the column with"):
        dialect.column_type(tp.DayTimeIntervalType(), Role.VALUE)


def test_keys_of_mysql_fit_an_index() -> None:
    """An index has 3072 bytes, and a character has up to four."""
    dialect = load_dialect(MYSQL)

    assert dialect.column_type(tp.StringType(), Role.KEY, 1).startswith("VARCHAR(768) ")
    assert dialect.column_type(tp.StringType(), Role.KEY, 4).startswith("VARCHAR(192) ")
    assert dialect.column_type(tp.BinaryType(), Role.KEY, 3) == "VARBINARY(1024)"


def test_names_are_quoted_and_their_length_is_checked() -> None:
    """PostgreSQL counts bytes and would cut off a longer name without an error."""
    postgres, mysql = load_dialect(POSTGRES), load_dialect(MYSQL)

    assert postgres.table_name('a"b', "c.d") == '"a""b"."c.d"'
    assert mysql.table_name("a`b", "c.d") == "`a``b`.`c.d`"
    postgres.check_name("x" * 63, "it")
    mysql.check_name("ä" * 64, "it")
    for dialect, name in ((postgres, "ä" * 32), (mysql, "x" * 65), (mysql, "a\0")):
        with pytest.raises(SinkError, match="the name of it has NUL" if "\0" in name else "it is too long") as caught:
            dialect.check_name(name, "it")
        assert "sink.table or routes.<name>.sink-table, a column with transforms.<name>.projection" in caught.value.hint


def test_sequences_compare_as_their_bytes() -> None:
    sequences = [
        Sequence(1, 2, 3, 4, 5),
        Sequence(1, 2, 3, 4, 256),
        Sequence(1, 2, 2**40, 0, 0),
        Sequence(256, 0, 0, 0, 0),
    ]

    assert sequences == sorted(sequences)
    found = [sequence_bytes(each) for each in sequences]
    assert found == sorted(found)
    assert {len(each) for each in found} == {40}


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://host/db?user=a&password=geheim",
        "jdbc:mysql://ann:geheim@host/db",
        "jdbc:mysql://(host=h,password=geheim)/db",
        "jdbc:postgresql://host/db?accessToken=geheim",
        "jdbc:other://host;clientSecret=geheim",
        "jdbc:oracle:thin:ann/geheim@host:1521/db",
    ],
)
def test_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sink\.url has a password; use sink\.password") as caught:
        config.parse({**SETTINGS, "sink.url": url})

    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("url", ["jdbc:postgresql://ann@host/tokens", "jdbc:postgresql://host/db?sslkey=/k&ssl=true"])
def test_other_parts_of_a_url_are_no_password(url: str) -> None:
    assert config.parse({**SETTINGS, "sink.url": url})


@pytest.mark.parametrize(
    ("url", "properties", "mode", "warned"),
    [
        ("jdbc:postgresql://db.example/d", {}, "verify-full", False),
        ("jdbc:postgresql://localhost,db.example:5432/d", {"sslrootcert": "/ca"}, "verify-full", False),
        ("jdbc:mysql://db.example/d", {}, "VERIFY_IDENTITY", False),
        ("jdbc:postgresql://localhost:5432/d", {}, None, False),
        ("jdbc:postgresql://ann@127.0.0.1/d", {}, None, False),
        ("jdbc:postgresql://[::1]:5432/d", {}, None, False),
        ("jdbc:postgresql:///d", {}, None, False),
        ("jdbc:postgresql:d", {}, None, False),
        ("jdbc:postgresql://db.example/d", {"sslmode": "require"}, "require", True),
        ("jdbc:postgresql://db.example/d?sslmode=disable", {}, None, True),
        ("jdbc:mysql://db.example/d?useSSL=false", {}, None, True),
        ("jdbc:postgresql://db.example/d", {"sslmode": "verify-ca"}, "verify-ca", False),
        ("jdbc:postgresql://localhost/d", {"sslmode": "disable"}, "disable", False),
    ],
)
def test_a_server_on_another_host_is_verified(
    url: str, properties: dict[str, str], mode: str | None, warned: bool
) -> None:
    """Unless the configuration says otherwise, which is warned of."""
    given = {f"sink.properties.{name}": value for name, value in properties.items()}
    options = config.parse({**SETTINGS, "sink.url": url, **given}).sink_options
    assert isinstance(options, JdbcOptions)
    with capture_logs() as logs:
        found = connection_properties(options, load_dialect(url))

    assert next((value for name, value in found.items() if name.lower() == "sslmode"), None) == mode
    assert [line["log_level"] for line in logs] == ["warning"] * warned


def test_names_with_braces_are_no_places() -> None:
    """A database may be called {table}."""
    names = {"database": "{table}", "table": "{database}"}
    assert PLACEHOLDER.sub(lambda found: names[found[1]], "{database}_{table}") == "{table}_{database}"


def test_url_without_a_dialect_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no dialect for it; use one of jdbc:mysql, jdbc:postgresql"):
        config.parse({**SETTINGS, "sink.url": "jdbc:oracle:thin:@host"})


@pytest.mark.parametrize("template", ["{database}", "a.b.{table}", "{table}.x", "x.{tab}"])
def test_template_without_the_table_in_its_last_part_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match=r"sink\.table"):
        config.parse({**SETTINGS, "sink.table": template})


def test_secrets_are_masked() -> None:
    found = config.parse({**SETTINGS, "sink.password": "geheim", "sink.properties.sslpassword": "geheim"})

    assert isinstance(found.sink_options, JdbcOptions)
    assert found.sink_options.password is not None
    assert found.sink_options.password.get_secret_value() == "geheim"
    assert "geheim" not in str(config.describe(found))
    assert "geheim" not in repr(found)


def test_a_target_that_cannot_be_reached_concerns_all_tables() -> None:
    assert concerns_all_tables(TargetUnavailableError("x"))
    assert not concerns_all_tables(SinkError("x"))


def test_texts_in_statements_are_quoted_as_each_database_reads_them() -> None:
    assert load_dialect(POSTGRES).literal("it's \\") == "'it''s \\'"
    assert load_dialect(MYSQL).literal("it's \\") == "'it''s \\\\'"


MODULE: Final = """
from tailrace.spark_consumer.sink.jdbc_dialect import Dialect
from tailrace.spark_consumer.sink.jdbc_mysql import MySqlDialect


class Other(MySqlDialect):
    driver = "com.example.Driver"
    jars = ("com.example:driver:1.0",)


class Unfinished(Dialect):
    pass


class Wrong:
    pass
"""


@pytest.fixture
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with dialects for one test."""
    info = tmp_path / "other_dialects-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-dialects\nVersion: 1.0\n", encoding="utf-8")
    names = {"other": "Other", "nothing": "Nothing", "unfinished": "Unfinished", "wrong": "Wrong"}
    lines = [f"{word} = other_dialects:{name}" for word, name in names.items()]
    lines = ["[tailrace.jdbc_dialects]", *lines, "absent = absent_dialects:Absent"]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "other_dialects.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "other_dialects", raising=False)


@pytest.mark.usefixtures("_package")
def test_dialect_of_another_package_brings_the_jars_of_its_driver() -> None:
    parsed = config.parse({**SETTINGS, "sink.url": "jdbc:other://host/db"})
    plugins = [sink.plugin for sink in load_sinks(parsed)]

    assert load_dialect("jdbc:other://host/db").driver == "com.example.Driver"
    found = session.settings(parsed, plugins, {}, spark_version="4.1.3")["spark.jars.packages"].split(",")
    assert found[-1] == "com.example:driver:1.0"
    assert any("spark-sql-kafka" in jar for jar in found)
    own = load_sinks(config.parse(SETTINGS))
    assert "com.example" not in str(session.coordinates([sink.plugin for sink in own], "4.1.3"))


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("nothing", "the dialect 'nothing' cannot be loaded from other_dialects:Nothing: .*has no attribute"),
        ("absent", "the dialect 'absent' cannot be loaded from absent_dialects:Absent: No module named"),
        ("unfinished", "the dialect 'unfinished' cannot be loaded from .*: Can't instantiate abstract class"),
        ("wrong", "other_dialects:Wrong is not a Dialect"),
    ],
)
def test_dialect_that_cannot_be_used_is_a_fault_of_the_configuration(word: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"sink.url: {reason}"):
        config.parse({**SETTINGS, "sink.url": f"jdbc:{word}://host/db"})
