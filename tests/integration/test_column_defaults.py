"""A default in a schema is the value that the server inserts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tailrace.producer.serialization.column_default import connect_default
from tests.integration.test_snapshot_stream_equality import MODES
from tests.support.codec import BothSources

if TYPE_CHECKING:
    from tests.support.database import Database

KINDS: Final = {
    "ts": "TIMESTAMP {null} DEFAULT '2018-01-01 00:00:00'",
    "tf": "TIMESTAMP(3) {null} DEFAULT '2018-07-01 12:00:00.125'",
    "tz": "TIMESTAMP {null} DEFAULT '0000-00-00 00:00:00'",
    "vb": "VARBINARY(9) {null} DEFAULT x'00ff'",
    "ve": "VARBINARY(9) {null} DEFAULT x''",
    "vt": "VARBINARY(9) {null} DEFAULT '0x41'",
    "bn": "BINARY(3) {null} DEFAULT x'ff0001'",
    "bp": "BINARY(3) {null} DEFAULT 'a'",
    "em": "VARCHAR(20) {null} DEFAULT 'é😀?'",
    "la": "VARCHAR(20) CHARACTER SET latin1 {null} DEFAULT 'é?'",
    "ut": "CHAR(5) CHARACTER SET utf16 {null} DEFAULT '😀'",
    "qu": "VARCHAR(20) {null} DEFAULT 'a\\'b\\\\c\\nd'",
    "bi": "BIT(10) {null} DEFAULT b'1010101010'",
    "b1": "BIT {null} DEFAULT b'1'",
    "en": "ENUM('a','é','b?') {null} DEFAULT 'b?'",
    "st": "SET('x','y') {null} DEFAULT 'x,y'",
    "dt": "DATETIME(2) {null} DEFAULT '2018-01-01 00:00:00.5'",
    "da": "DATE {null} DEFAULT '2018-01-01'",
    "ti": "TIME(1) {null} DEFAULT '12:00:00.5'",
    "ye": "YEAR {null} DEFAULT 2018",
    "de": "DECIMAL(5,2) {null} DEFAULT 1.5",
    "fl": "FLOAT {null} DEFAULT 1.1",
    "do": "DOUBLE {null} DEFAULT 1e300",
    "bo": "BOOLEAN {null} DEFAULT TRUE",
    "ub": "INT UNSIGNED {null} DEFAULT 4294967295",
    "zf": "INT(5) ZEROFILL {null} DEFAULT 7",
}
NONE: Final = {
    "nu": "INT NULL DEFAULT NULL",
    "nd": "VARCHAR(9) NOT NULL",
    "ex": "INT DEFAULT (1 + 2)",
    "xt": "TEXT DEFAULT ('?')",
    "ge": "VARCHAR(9) AS ('?') STORED",
    "ct": "TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP",
}
"""Columns without a literal default."""


@pytest.mark.parametrize("null", ["NULL", "NOT NULL"])
def test_a_default_is_what_the_server_inserts(database: Database, null: str) -> None:
    """Defined in another time zone than that of the producer's sessions; read while the table is empty."""
    sources = BothSources(database)
    columns = {**{name: kind.format(null=null) for name, kind in KINDS.items()}, **NONE}
    database.execute("SET time_zone = '+02:00'")
    body = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    database.execute(f"CREATE TABLE `odd``é` (id INT PRIMARY KEY, {body})")
    table = sources.table("odd`é")
    database.execute("INSERT INTO `odd``é` (id, nd) VALUES (1, 'x')")

    for settings in MODES:
        ((_, row),) = sources.selected(table, settings)
        inserted = json.loads(row)
        defaults = {column.name: connect_default(column, settings) for column in table.columns}
        assert {name: defaults[name] for name in KINDS} == {name: inserted[name] for name in KINDS}
        assert {name: defaults[name] for name in NONE} == dict.fromkeys(NONE)
