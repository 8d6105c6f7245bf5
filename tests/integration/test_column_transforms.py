"""Column rules on a real server: SELECT and binlog give the same rows; all problems are reported at once."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.producer.config.column_transforms import ColumnProjection, Hash, Mask, Transform, Truncate
from tailrace.producer.model.table import Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.result_stream import read_rows
from tailrace.producer.serialization.captured_tables import with_float_digits
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tests.debezium_parity.type_tables import TYPE_TABLES, TypeTable
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.integration.test_bad_input import _produce
from tests.support.capture import properties
from tests.support.codec import EVENT_ENVELOPE, SNAPSHOT_ENVELOPE, BothSources, row_of
from tests.support.database import Database
from tests.support.values import value_options

TEXT = frozenset({"char", "varchar", "text", "enum", "set"})
MODES = (
    value_options(),
    value_options(
        time_precision_mode="isostring",
        decimal_handling_mode="string",
        binary_handling_mode="hex",
        conversion_failures="warn",
    ),
)


def _projections(table: Table) -> list[ColumnProjection]:
    """Return each transform on all columns that it supports, and a projection without every second column."""
    others = [column for column in table.columns if column.name not in table.key]
    changes: list[Transform] = [
        Mask(0),
        Mask(7),
        Hash("sha256", b"salt", plain=True),
        Hash("md5", b"salt", plain=False),
    ]
    projections = [
        ColumnProjection(transforms={column.name: Truncate(length) for column in table.columns})
        for length in (0, 2, 10)
    ]
    projections += [
        ColumnProjection(transforms={c.name: change for c in others if c.data_type in TEXT}) for change in changes
    ]
    return [*projections, ColumnProjection(dropped=frozenset(column.name for column in others[::2]))]


def _selected(sources: BothSources, table: Table, codec: TableCodec) -> list[tuple[bytes, bytes]]:
    with closing(sources.session()) as session:
        sql = f"SELECT {codec.select_list} FROM {table.id.quoted} ORDER BY id"
        blocks = list(read_rows(session, sql, codec, SNAPSHOT_ENVELOPE))
    return [(key, row_of(value)) for block in blocks for key, value in block.records]


def _logged(
    sources: BothSources, table: Table, settings: ValueOptions, projection: ColumnProjection
) -> list[tuple[bytes, bytes]]:
    found = []
    for rows in sources.rows_events(table, "c"):
        mapped = Table(table.id, with_float_digits(rows.table.columns, table.columns), table.key)
        codec = TableCodec(mapped, "topic", CodecOptions(settings, projection))
        for record in codec.inserts(rows.data, rows.start, rows.stop, EVENT_ENVELOPE).records:
            assert isinstance(record, tuple)
            assert record[1] is not None
            found.append((record[0], row_of(record[1])))
    return found


@pytest.mark.parametrize("family", TYPE_TABLES, ids=lambda family: family.name)
def test_select_and_binlog_give_the_same_bytes(database: Database, family: TypeTable) -> None:
    """With each rule in two modes; the rows are JSON with the published columns."""
    sources = BothSources(database)
    for statement in (family.create(), *family.inserts()):
        database.execute(statement)
    table = sources.table(family.name)
    compared = 0
    for settings in MODES:
        for projection in _projections(table):
            codec = TableCodec(table, "topic", CodecOptions(settings, projection))
            rows = _selected(sources, table, codec)
            assert rows == _logged(sources, table, settings, projection), projection
            names = [column.name for column in projection.visible(table.columns)]
            assert all(list(json.loads(row)) == names for _, row in rows)
            assert [json.loads(key)["id"] for key, _ in rows] == [json.loads(row)["id"] for _, row in rows]
            compared += len(rows)
    assert compared >= len(family.rows) * len(MODES) * 8


def test_all_problems_of_columns_are_reported(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """A dropped key, a masked number, two rules for a column, a missing key column; nothing is written."""
    name = database.name
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, n DECIMAL(5,2), t TEXT)")
    database.execute("CREATE TABLE b (id INT PRIMARY KEY, j JSON)")
    settings = {
        **properties(mysql_server, kafka_broker, prefix, name),
        "column.exclude.list": f"{name}.b.id",
        "column.mask.with.4.chars": f"{name}.a.(n|t), {name}.b.j",
        "column.mask.hash.v2.SHA-256.with.salt.open-sesame": f"{name}.a.t, {name}.a.never",
        "message.key.columns": f"{name}.a:id,nope",
    }

    said = _produce(settings, tmp_path)

    assert f"column.exclude.list={name}.b.id drops {name}.b.id, which is a key column" in said
    assert f"matches {name}.a.n, which is DECIMAL: only text can be masked" in said
    assert f"matches {name}.b.j, which is JSON: only text can be masked" in said
    assert f"{name}.a.t is matched by properties of which only one can apply" in said
    assert f"column.mask.hash.v2.SHA-256.with.salt.********={name}.a.t, {name}.a.never" in said
    assert f"names columns that {name}.a does not have: nope" in said


def test_check_reports_problems_and_notes(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """``tailrace check``: problems are errors; what is allowed but rarely intended is a note."""
    name = database.name
    database.execute("CREATE TABLE a (id INT, mail VARCHAR(20), n INT, PRIMARY KEY (id, mail))")
    settings = {
        **properties(mysql_server, kafka_broker, prefix, name),
        "column.mask.hash.MD5.with.salt.open-sesame": f"{name}.a.mail, {name}.a.n",
        "column.truncate.to.2.chars": f"{name}.a.nothing",
    }
    config = tmp_path / "producer.json"

    def check() -> subprocess.CompletedProcess[str]:
        config.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "producer", "check", "--config", str(config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    bad = check()
    settings["column.mask.hash.MD5.with.salt.open-sesame"] = f"{name}.a.mail"
    good = check()

    assert (bad.returncode, good.returncode) == (78, 0)
    assert f"matches {name}.a.n, which is INT: only text can be masked" in bad.stderr
    assert "record keys contain the original values: mail" in good.stderr
    assert f"no captured column matches column.truncate.to.2.chars={name}.a.nothing" in good.stderr
    assert "ready to capture 1 table(s)" in good.stdout
    assert "sesame" not in bad.stdout + bad.stderr + good.stdout + good.stderr
