"""Rows that are read again by their keys: keys of every kind, keys that the table has no longer, and races."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tailrace.producer.errors import KeysRefusedError
from tailrace.producer.snapshot import reader
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.producer.verify.table_checksums import answers
from tailrace.schemas.verification import (
    BUCKETS,
    ChosenKeys,
    ComparedRow,
    ComparedTable,
    Keys,
    RepairRequest,
    Request,
    Window,
)
from tests.support.capture import CaptureThread, configured, eventually, records_of
from tests.support.incremental_checks import signal, state_of
from tests.support.incremental_window import SplitHook, check_counts, settings_of
from tests.support.reference_model import final_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database
    from tests.support.topics import Read

MIXED = (
    (
        "id BIGINT UNSIGNED, code VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, day DATE, bin VARBINARY(8), "
        "amount DECIMAL(10,3), l VARCHAR(9) CHARACTER SET latin1, PRIMARY KEY (id, code, day, bin, amount, l)"
    ),
    [
        (2**64 - 1, "Zoë ", "2024-02-29", b"\x00'\xff", "-1.250", "é'"),
        (2**64 - 1, "zoe", "2024-02-29", b"", "7.000", ""),
        (0, "K\\0", "1000-01-01", b"\\", "0.001", "x"),
    ],
)
OTHERS = (
    (
        "at DATETIME(6), t TIME(3), y YEAR, f DOUBLE, e ENUM('a','ü'), s SET('b','c'), b BIT(9), o BIT(1), "
        "ts TIMESTAMP(2), g VARCHAR(5) CHARACTER SET utf16, PRIMARY KEY (at, t, y, f, e, s, b, o, ts)"
    ),
    [
        ("2024-01-02 03:04:05.000006", "-100:00:01.500", 0, 1 / 3, "ü", "b,c", 300, 1, "2024-01-02 03:04:05.25", "1"),
        ("9999-12-31 23:59:59", "00:00:00", 2155, -0.0, "a", "", 0, 0, "2038-01-19 03:14:07", "2"),
        ("2024-01-02 03:04:05.000007", "838:59:59", 1901, 1e300, "a", "c", 511, 0, "1970-01-01 00:00:01", "3"),
    ],
)
FILLED = (
    "n INT NOT NULL DEFAULT 5, name VARCHAR(5) NOT NULL DEFAULT 'x', note TEXT, photo BLOB NOT NULL DEFAULT ('y'), "
    "doc JSON NOT NULL DEFAULT (JSON_ARRAY(1)), place POINT NOT NULL DEFAULT (POINT(1, 2)), "
    "d DATETIME(3) NOT NULL DEFAULT NOW(3), c TIME(2) NOT NULL DEFAULT '01:00', "
    "z YEAR NOT NULL DEFAULT 2020, k ENUM('p','q') NOT NULL DEFAULT 'q', "
    "m SET('r') NOT NULL DEFAULT 'r', v BIT(3) NOT NULL DEFAULT 7, w DECIMAL(5,2) NOT NULL DEFAULT 1, "
    "r FLOAT NOT NULL DEFAULT 1, u BINARY(3) NOT NULL DEFAULT 'abc', j DATE NOT NULL DEFAULT '2020-01-01'"
)


def texts_of(settings: dict[str, str], database: str) -> ChosenKeys:
    """Return all keys of the table t."""
    plans: list[ComparedTable] = []

    def requests() -> Iterator[Request]:
        yield Request(plans[0].key, Keys.of_buckets(range(BUCKETS)))

    texts = []
    for record in answers(configured(settings), f"{settings['topic.prefix']}.{database}.t", requests()):
        if isinstance(record, ComparedTable):
            plans.append(record)
        elif isinstance(record, ComparedRow):
            texts.append(record.key)
    return ChosenKeys(plans[0].key, tuple(texts))


def request_keys(broker: KafkaBroker, prefix: str, database: str, keys: ChosenKeys) -> None:
    """Send a signal for the rows of keys of the table t."""
    chosen = {"columns": keys.columns, "texts": keys.texts}
    signal(broker, prefix, "execute-snapshot", {"data-collections": [f"{database}.t"], "keys": chosen})


def body(record: Read) -> Any:
    """Return the envelope of a record, with or without a schema; {} of a tombstone."""
    return (record.json or {}).get("payload", record.json or {})


def deletes_of(records: Sequence[Read], snapshot: str = "incremental") -> list[Read]:
    """Return the deletes of a snapshot, or of the stream."""
    return [r for r in records if r.value and (body(r)["op"], body(r)["source"]["snapshot"]) == ("d", snapshot)]


def served(broker: KafkaBroker, prefix: str, signals: int) -> bool:
    """Return whether so many signals are processed, and no request is left."""
    found = state_of(broker, prefix, "signals")
    return found is not None and (found["kafka"], found["queue"]) == (signals - 1, 0)


def sequence(record: Read) -> tuple[int, ...]:
    """Return the sequence of a record."""
    epoch, event = map(int, record.headers["tailrace.event"].split(b"."))
    source = body(record)["source"]
    return epoch, int(source["file"].rpartition(".")[2]), source["pos"], event, source["row"]


@pytest.mark.parametrize(("columns", "rows"), [MIXED, OTHERS])
@pytest.mark.parametrize("schemas", ["false", "true"])
def test_keys_of_every_kind_are_read_or_deleted(
    *,
    columns: str,
    rows: list[tuple[object, ...]],
    schemas: str,
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
) -> None:
    own, _, key = columns.partition("PRIMARY KEY")
    database.execute(f"CREATE TABLE t ({own}{FILLED}, PRIMARY KEY{key})")
    names = ", ".join(column.split()[0] for column in own.split(", ") if column)
    settings = settings_of(mysql_server, kafka_broker, prefix, database) | {
        "key.converter.schemas.enable": schemas,
        "value.converter.schemas.enable": schemas,
    }
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        marks = ", ".join(["%s"] * len(rows[0]))
        database.executemany(f"INSERT INTO t ({names}) VALUES ({marks})", rows)
        capture.wait_position(mysql_server)
        keys = texts_of(settings, database.name)
        assert len(keys.texts) == len(rows)
        request_keys(kafka_broker, prefix, database.name, keys)
        eventually(lambda: served(kafka_broker, prefix, 1), "rows read again")
        found = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
        assert not deletes_of(found)
        database.execute("DELETE FROM t LIMIT 2")
        capture.wait_position(mysql_server)
        request_keys(kafka_broker, prefix, database.name, keys)
        eventually(lambda: served(kafka_broker, prefix, 2), "rows read again")
        requests = iter([RepairRequest(keys)])  # as a comparison does
        _, window = answers(configured(settings), f"{prefix}.{database.name}.t", requests)
        assert isinstance(window, Window)
        assert served(kafka_broker, prefix, 3)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    deletes = deletes_of(records)
    own_deletes = {record.key: record for record in deletes_of(records, "false")}
    assert len(own_deletes) == 2
    assert sorted(record.key or b"" for record in deletes) == sorted(2 * [key or b"" for key in own_deletes])
    for record in deletes:
        assert record.key is not None
        row, was = body(record)["before"], body(own_deletes[record.key])["before"]
        assert row.keys() == was.keys()
        assert {name: row[name] for name in keys.columns} == {name: was[name] for name in keys.columns}
        assert (row["note"], row["n"], body(record)["after"]) == (None, 0, None)
    # Nothing was written to the source between the two signals.
    reads = [record for record in records if body(record).get("op") == "r"][len(rows) :]
    assert len(reads) == 2
    assert sequence(reads[0]) < sequence(reads[1])
    assert reads[0].key not in own_deletes


def test_keys_that_no_row_can_have_leave_the_table_healthy(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The request alone is refused, or the key alone is left out; no row is lost in a target."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
    database.execute("INSERT INTO t VALUES (7, 'kept')")
    refused = [
        (ChosenKeys(("id",), ("7 ",)), "has refused to read"),  # as a signal
        (ChosenKeys(("id",), ("8", "07")), "request was cancelled"),  # by the reader
        (ChosenKeys(("ID",), ("7",)), "request was cancelled"),
    ]
    topic = f"{prefix}.{database.name}.t"
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with capture_logs() as logs, CaptureThread(settings) as capture:
        capture.wait_snapshot()
        for keys, reason in refused:
            with pytest.raises(KeysRefusedError, match=rf"(?s){reason}.*hint: look for the signal in its log, which"):
                list(answers(configured(settings), topic, [RepairRequest(keys)]))
        said = str(logs)
        for hint in (
            "take the texts from a comparison of the table as it is now",
            "compare again: the key has changed",
        ):
            assert f"hint: {hint}" in said
        keys = ChosenKeys(("id",), ("N", "99999999999", "7", "9"))
        assert len(list(answers(configured(settings), topic, [RepairRequest(keys)]))) == 2
        database.execute("INSERT INTO t VALUES (10, 'new')")
        capture.wait_position(mysql_server)

    table = state_of(kafka_broker, prefix, f"table/{database.name}.t")
    assert table is not None
    assert (table["mode"], table.get("fault")) == ("streaming", None)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in final_rows(records).values()} == {7: "kept", 10: "new"}
    assert [record.json["before"]["id"] for record in deletes_of(records)] == [9]


def test_keys_that_no_index_finds_are_refused_in_a_large_table(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The changes of the table would wait for as long as it is read."""
    monkeypatch.setattr(reader, "MAX_SCANNED", -1)
    database.execute("CREATE TABLE t (id FLOAT PRIMARY KEY)")
    database.execute("CREATE TABLE u (id INT PRIMARY KEY)")
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    hooks = SnapshotHooks(before_low=SplitHook("t", lambda: None, 0))
    with capture_logs() as logs, CaptureThread(settings, hooks) as capture:
        capture.wait_snapshot()
        for table, text in (("u", "1"), ("t", "3FE0000000000000")):
            answered = answers(
                configured(settings),
                f"{prefix}.{database.name}.{table}",
                [RepairRequest(ChosenKeys(("id",), (text,)))],
            )
            if table == "u":
                assert len(list(answered)) == 2
            else:
                with pytest.raises(KeysRefusedError, match="request was cancelled"):
                    list(answered)
                assert "hint: request a snapshot of the whole table" in str(logs), "table u is small enough"


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high", "after_high"])
def test_a_concurrent_change_wins(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
    database.execute("INSERT INTO t VALUES (1, 'old'), (2, 'old'), (4, 'old')")

    def act() -> None:
        database.execute("INSERT INTO t VALUES (3, 'new')")
        database.execute("UPDATE t SET v = 'new' WHERE id = 1")
        database.execute("DELETE FROM t WHERE id = 2")

    hook = SplitHook("t", act, 0)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        request_keys(kafka_broker, prefix, database.name, ChosenKeys(("id",), ("1", "2", "3", "5")))
        eventually(lambda: hook.done and served(kafka_broker, prefix, 1), "rows read again")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    rows = {row["id"]: row["v"] for row in final_rows(records).values()}
    assert rows == {1: "new", 3: "new", 4: "old"} == dict(database.execute("SELECT * FROM t"))
    # A sink that compares sequences has the same rows.
    last: dict[bytes, Read] = {}
    for record in records:
        if record.value and (record.key not in last or sequence(last[record.key]) <= sequence(record)):
            assert record.key is not None
            last[record.key] = record
    assert {r.json["after"]["id"]: r.json["after"]["v"] for r in last.values() if r.json["after"]} == rows
    deleted = {record.json["before"]["id"] for record in deletes_of(records)}
    assert 5 in deleted
    assert 4 not in deleted
    assert 3 in deleted or moment in {"before_low", "after_low"}
    check_counts(kafka_broker, prefix, f"{prefix}.{database.name}.t")
