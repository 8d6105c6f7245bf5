"""MySQL 5.7: its binlog has no optional metadata, and its JSON prints doubles in another way."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator

import pytest

from tests.embedded.mysql import MySqlServer
from tests.support.codec import BothSources
from tests.support.database import Database
from tests.support.values import value_options

VERSION = "5.7.22"
pytestmark = pytest.mark.mysql(VERSION)

COLUMNS = {
    "TINYINT UNSIGNED": ("255", "255"),
    "BIGINT UNSIGNED": ("18446744073709551615", "-1"),
    "DECIMAL(10,2) UNSIGNED ZEROFILL": ("1.5", '"AJY="'),
    "FLOAT UNSIGNED": ("1.5", "1.5"),
    "YEAR": ("1901", "1901"),
    "VARCHAR(9) CHARACTER SET latin1": ("'é'", '"é"'),
    "CHAR(9) CHARACTER SET utf8": ("'ü'", '"ü"'),
    "TEXT CHARACTER SET ucs2": ("'ü'", '"ü"'),
    "TEXT CHARACTER SET utf8mb4": ("'😀'", '"\\uD83D\\uDE00"'),
    "BLOB": ("'a'", '"YQ=="'),
    "VARBINARY(9)": ("'a'", '"YQ=="'),
    "BINARY(3)": ("'a'", '"YQAA"'),
    "ENUM('é','?') CHARACTER SET latin1": ("'é'", '"é"'),
    "SET('x','y','z')": ("'z,x'", '"x,z"'),
    "BIT(9)": ("b'100000001'", '"AQE="'),
    "TIME(3)": ("'-733:00:00.0011'", "-2638800001000"),
    "DATETIME(6)": ("'1969-12-31 23:59:59.000001'", "-999999"),
    "TIMESTAMP NULL": ("'2038-01-19 03:14:07'", '"2038-01-19T03:14:07Z"'),
    "POINT": ("POINT(1, -2.5)", '{"x":1.0,"y":-2.5,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAATA","srid":null}'),
    "LINESTRING": ("ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)", None),
    "JSON": ("JSON_ARRAY(1e0, -0e0, 1.0, 1e20, x'01', NOW(6))", None),
}
"""Types whose definition the TABLE_MAP event lacks, in part; a literal, and its JSON."""
DOUBLES = (0.0, -0.0, 1.0, -100.0, 999999999999999.0, 1e15, 1234567890123456.5, 1e16, 1e-5, 1e-15, 1e-16, 5e-324, 0.1)


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """A server of that version."""
    with MySqlServer(version=VERSION) as started:
        yield started


@pytest.fixture
def old(server: MySqlServer) -> Iterator[Database]:
    """A database on it."""
    fresh = Database(server, "old")
    yield fresh
    fresh.drop()


def test_signs_character_sets_and_labels_are_those_of_the_definition(old: Database) -> None:
    """The event has types, sizes and nullability only."""
    both = BothSources(old)
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(COLUMNS))
    old.execute(f"CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
    old.execute(f"INSERT INTO t VALUES (4294967295, {', '.join(literal for literal, _ in COLUMNS.values())})")
    table, options = both.table("t"), value_options()

    [(key, row)] = both.logged(table, options)

    assert key == b'{"id":4294967295}'
    assert [(key, row)] == both.selected(table, options)
    for at, (_, json) in enumerate(COLUMNS.values()):
        assert json is None or f'"c{at}":{json}'.encode() in row


def test_doubles_in_json_are_those_of_a_select(old: Database) -> None:
    """Those of every kind, within containers too; what is no double keeps its digits."""
    pick = random.Random(7)
    chosen = [struct.unpack("<d", pick.randbytes(8))[0] for _ in range(200)]
    chosen += [pick.choice((1, -1)) * pick.randrange(10**17) / 10 ** pick.randrange(20) for _ in range(300)]
    doubles = [*DOUBLES, *filter(math.isfinite, chosen)]
    both = BothSources(old)
    old.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
    for number, value in enumerate(doubles):
        old.execute(
            f"INSERT INTO t VALUES ({number}, JSON_ARRAY({value!r}e0))"
            if "e" not in repr(value)
            else f"INSERT INTO t VALUES ({number}, JSON_OBJECT('v', {value!r}))"
        )
    old.execute("INSERT INTO t VALUES (-1, JSON_ARRAY(1, 1e0, 1.0, CAST(1 AS DECIMAL(10,5)), -0e0, 'x: 1.0'))")
    table, options = both.table("t"), value_options()
    logged = both.logged(table, options)

    assert sorted(logged) == sorted(both.selected(table, options))
    assert logged[-1][1] == b'{"id":-1,"j":"[1,1,1.0,1.00000,-0,\\"x: 1.0\\"]"}'
