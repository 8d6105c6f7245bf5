"""The measured phases: snapshot into Kafka, stream into Kafka, consumer into Delta; and the latency.

A phase ends when a read_committed consumer can read its last record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import orjson

from tailrace.schemas.names import state_topic
from tests.bench import customer, topics
from tests.bench.stack import PREFIX, TOPIC, Program, Stack
from tests.bench.usage import Usage, Used
from tests.demo.delta_log import DeltaLog

_LATENCY_RATE = 50
"""Transactions per second."""
_PAUSE_S = 2.0
"""Pause before latency is measured, so that the work of the previous phase is complete."""


@dataclass(frozen=True, slots=True)
class Result:
    """One phase: rows or changes, and seconds. ``whole_s`` includes the start of the program."""

    name: str
    rows: int
    seconds: float
    whole_s: float
    used: list[Used]
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    @property
    def own(self) -> list[Used]:
        """What the program used, without the servers."""
        return [used for used in self.used if used.name not in {"MySQL", "Kafka"}]

    @property
    def cpu_rate(self) -> float:
        """Rows per CPU second of the program, without the servers."""
        return self.rows / max(0.01, sum(used.cpu_s for used in self.own))

    @property
    def whole_cpu_rate(self) -> float:
        """Rows per CPU second of all processes, servers included."""
        return self.rows / max(0.01, sum(used.cpu_s for used in self.used))


def snapshot(stack: Stack, usage: Usage, rows: int) -> Result:
    """Measure from the first LOW watermark to the END of the last split. Stop the producer then."""
    started = time.time()
    producer = stack.produce()
    begin, end, splits = topics.wait_snapshot(stack.kafka.bootstrap, rows, producer)
    result = Result("snapshot", rows, end - begin, end - started, used(usage, begin, end), {"splits": splits})
    producer.stop()
    return result


def stream(stack: Stack, usage: Usage, kind: str, changes: int, *, per_transaction: int) -> Result:
    """Measure from the first record to the offset after the last one, for changes made while the producer was down."""
    made = time.monotonic()
    customer.change(stack.mysql, kind, changes, per_transaction=per_transaction)
    made = time.monotonic() - made
    bootstrap = stack.kafka.bootstrap
    first = topics.end_offset(bootstrap)
    stored = topics.end_offset(bootstrap, state_topic(PREFIX))
    started = time.time()
    producer = stack.produce()
    end = topics.wait_stream(bootstrap, customer.executed_gtids(stack.mysql), producer, start=stored)
    begin = topics.sent_at(bootstrap, first)
    records = topics.end_offset(bootstrap) - first
    if records < changes:
        raise AssertionError(f"{changes} changes produced only {records} records")
    facts: dict[str, object] = {"server_seconds": round(made, 1), "records": records}
    name = f"stream, {kind}, {per_transaction} per transaction"
    result = Result(name, changes, end - begin, end - started, used(usage, begin, end), facts)
    producer.stop()
    return result


def latency(
    stack: Stack, changes: int, *, start: Callable[[], Program] | None = None, topic: str = TOPIC
) -> dict[str, float]:
    """Return the ms from the end of a single-row COMMIT until its record is readable: median, p95, p99, maximum.

    ``start`` starts the program that writes ``topic``; None: the producer.
    """
    producer = (start or stack.produce)()
    bootstrap = stack.kafka.bootstrap
    committed: dict[int, float] = {}
    delays: list[float] = []
    with (
        topics.Follower(bootstrap, topic, topics.end_offset(bootstrap, topic)) as follower,
        stack.mysql.connect(database=customer.DATABASE) as session,
        session.cursor() as cursor,
    ):
        table = customer.TABLE
        # The first change shows that the producer streams; it is not counted.
        cursor.execute(f"UPDATE {table} SET c_login = UUID_SHORT() % 1000000000 WHERE c_customer_sk = 1")
        _wait_record(follower, producer)
        _idle(follower, _PAUSE_S)
        begin = time.monotonic()
        for i in range(changes):
            _collect(follower, committed, delays, until=begin + i / _LATENCY_RATE)
            cursor.execute(f"UPDATE {table} SET c_login = 'l{i}' WHERE c_customer_sk = %s", (i + 2,))
            committed[i + 2] = time.monotonic()
        while len(delays) < changes:
            producer.check()
            _collect(follower, committed, delays, until=time.monotonic() + 0.1)
        _idle(follower, _PAUSE_S)  # a tool without transactions stores its offset now and then
    producer.stop()
    delays.sort()
    at = {"median": 0.5, "p95": 0.95, "p99": 0.99, "maximum": 1.0}
    return {name: delays[min(int(changes * part), changes - 1)] * 1000 for name, part in at.items()}


def _wait_record(follower: topics.Follower, producer: Program) -> None:
    until = time.monotonic() + 300
    while follower.next(0.2) is None:
        producer.check()
        if time.monotonic() > until:
            raise TimeoutError(f"no record of the first change{producer.tail()}")


def _idle(follower: topics.Follower, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        follower.next(left)


def _collect(follower: topics.Follower, committed: dict[int, float], delays: list[float], *, until: float) -> None:
    """Collect the records that become readable before ``until``."""
    while (left := until - time.monotonic()) > 0:
        message = follower.next(left)
        if message is not None:
            key = int(orjson.loads(message.key() or b"")["c_customer_sk"])
            if key in committed:  # an update can be two records
                delays.append(time.monotonic() - committed.pop(key))


def consume(stack: Stack, usage: Usage, rows: int) -> Result:
    """Measure from the start of the first micro-batch to the end of the last one. ``rows`` includes changes."""
    started = time.time()
    consumer = stack.consume()
    while not consumer.ended:
        time.sleep(0.1)
    consumer.check()
    batches = _batches(consumer)
    begin, end = batches[0][0], batches[-1][1]
    in_sink = DeltaLog(_delta_table(stack)).rows()
    expected = customer.count_rows(stack.mysql)
    if in_sink != expected:
        raise AssertionError(f"the Delta table has {in_sink} rows, the source {expected}")
    facts: dict[str, object] = {
        "batches": [round(stop - start, 1) for start, stop in batches],
        "session_seconds": round(begin - started, 1),
    }
    return Result("consumer", rows, end - begin, time.time() - started, used(usage, begin, end), facts)


def _batches(consumer: Program) -> list[tuple[float, float]]:
    """Return start and end of each micro-batch, in wall time, from the consumer's log."""
    found = []
    for line in consumer.log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("{") and (entry := json.loads(line)).get("event") == "batch applied":
            end = datetime.fromisoformat(entry["timestamp"]).timestamp()
            found.append((end - entry["seconds"], end))
    if not found:
        raise AssertionError(f"the consumer logged no batch{consumer.tail()}")
    return found


def _delta_table(stack: Stack) -> Path:
    [log_folder] = stack.sink.rglob("_delta_log")
    return log_folder.parent


def used(usage: Usage, begin: float, end: float) -> list[Used]:
    """Return what each process used between two wall times."""
    shift = time.monotonic() - time.time()
    return usage.used(begin + shift, end + shift)
