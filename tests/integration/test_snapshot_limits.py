"""Limits of rows and bytes a second, over all readers, on a real table."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureThread, properties, verified_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.support.database import Database

ROWS, CHUNK, ROW_BYTES, ROWS_PER_S = 3000, 100, 1000, 500


@pytest.mark.long
@pytest.mark.parametrize(("unit", "size"), [("rows", 1), ("bytes", ROW_BYTES)])
def test_readers_together_keep_a_limit(
    unit: str, size: int, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, v CHAR(255), w VARCHAR({ROW_BYTES}))")
    database.executemany(
        "INSERT INTO t VALUES (%s, '', %s)", [(key, "x" * (ROW_BYTES - 10)) for key in range(1, ROWS + 1)]
    )
    limit = {f"tailrace.snapshot.max.{unit}.per.second": ROWS_PER_S * size}
    changes = {**limit, "snapshot.max.threads": 2, "incremental.snapshot.chunk.size": CHUNK}
    begun: list[float] = []
    lock = threading.Lock()

    def note(_: Split) -> None:
        with lock:
            begun.append(time.monotonic())

    hooks = SnapshotHooks(before_low=note)
    with CaptureThread(properties(database.server, kafka_broker, prefix, database.name, changes), hooks) as capture:
        capture.wait_snapshot()
    begun.sort()
    rows = ROWS / len(begun)  # the splits have equal widths
    assert rows < CHUNK * 1.2
    for first, start in enumerate(begun):
        for last, at in enumerate(begun[first:], 1):
            # A reader may begin late what it was given early: one split more for each.
            assert (last - 4) * rows <= ROWS_PER_S * (at - start + 1)
    assert begun[-1] - begun[0] >= (ROWS - 4 * rows) / ROWS_PER_S - 1
    assert len(verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")) == ROWS
