"""``tailrace checksums``: sums and rows of a table that has several ranges, and a table that is altered meanwhile."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator

import pytest

from tailrace.producer.verify.table_checksums import answers
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.verification import (
    BUCKETS,
    BucketSum,
    ComparedRow,
    ComparedTable,
    Keys,
    Record,
    Request,
    SumsProgress,
    Window,
)
from tests.embedded.kafka import KafkaBroker
from tests.support.capture import CaptureThread, configured, properties
from tests.support.database import Database

ROWS = 1 << 17
"""More than two ranges."""


def _answer(records: Iterator[Record]) -> list[Record]:
    """Return the records before the window, which ends an answer."""
    answer: list[Record] = []
    for record in records:
        if isinstance(record, Window):
            return answer
        answer.append(record)
    raise AssertionError(answer[-3:])


def _rows(records: Iterator[Record]) -> list[tuple[str, str]]:
    """Return key, and checksum or text, of the rows of an answer."""
    rows = []
    for record in _answer(records):
        assert isinstance(record, ComparedRow)
        rows.append((record.key, record.content))
    return rows


@pytest.mark.long
def test_sums_are_those_of_the_rows_of_all_ranges(database: Database, kafka_broker: KafkaBroker, prefix: str) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), amount DECIMAL(9,2) ZEROFILL)")
    database.execute("INSERT INTO t VALUES (1, 'n', 0.25)")
    for power in range(17):
        database.execute(f"INSERT INTO t SELECT id + {1 << power}, IF(id % 7, CONCAT('n', id), NULL), id / 4 FROM t")
    few_splits = {"incremental.snapshot.chunk.size": "40000"}
    settings = properties(database.server, kafka_broker, prefix, database.name, few_splits)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()

        def requests() -> Iterator[Request]:
            yield Request(("id", "name", "amount"))
            yield Request(("id", "name", "amount"), Keys.of_buckets(range(BUCKETS)))
            yield Request(("id", "name", "amount"), Keys.of_texts(["1", "119999", "-1"]))
            yield Request(("id", "amount"), Keys.of_texts(["4"]), texts=True)
            database.execute("ALTER TABLE t MODIFY name VARCHAR(300)")
            yield Request(("id", "name", "amount"))

        read = answers(configured(settings), f"{prefix}.{database.name}.t", requests())
        table = next(read)
        assert isinstance(table, ComparedTable)
        answer = _answer(read)
        progress = [record.rows for record in answer if isinstance(record, SumsProgress)]
        sums = {each.bucket: (each.rows, int(each.xor, 16)) for each in answer if isinstance(each, BucketSum)}
        assert len(answer) == len(progress) + len(sums)
        rows = {key: int(checksum, 16) for key, checksum in _rows(read)}
        assert rows.keys() == {str(number) for number in range(1, ROWS + 1)}
        counts: Counter[int] = Counter()
        xor: Counter[int] = Counter()
        for key, checksum in rows.items():
            number = zlib.crc32(key.encode()) % BUCKETS
            counts[number] += 1
            xor[number] ^= checksum
        assert len(progress) > 2
        assert progress[-1] == ROWS
        assert sums == {number: (count, xor[number]) for number, count in counts.items()}

        few = [(key, int(checksum, 16)) for key, checksum in _rows(read)]
        assert few == [(key, rows[key]) for key in ("1", "119999")]
        assert _rows(read) == [("4", "4,0.5")]

        with pytest.raises(SchemaError, match=r"(?s)was altered while it was compared.*hint: run the comm"):
            next(read)
