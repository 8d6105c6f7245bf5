"""Versions of rows (SCD type 2) against a model in plain Python: random changes, orders, batches and repeats."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as tp

from tailrace.spark_consumer.sink.versions import affected_versions, kept_rows, versions
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

BATCHES = 5
KEYS = 150

_KEY = tp.StructType([tp.StructField("id", tp.LongType())])
_VALUES = tp.StructType([tp.StructField("id", tp.LongType()), tp.StructField("name", tp.StringType())])
_ADDED = tp.StructType([tp.StructField("__op", tp.StringType())])
_SEEN = tp.StructType([tp.StructField("seq", SEQUENCE_TYPE), tp.StructField("at", tp.TimestampType())])
_RECORD = tp.StructType(
    [
        tp.StructField("partition", tp.IntegerType()),
        tp.StructField("offset", tp.LongType()),
        tp.StructField("part", tp.IntegerType()),
    ]
)
EVENTS = tp.StructType(
    [
        tp.StructField("key", _KEY),
        tp.StructField("seq", SEQUENCE_TYPE),
        tp.StructField("at", tp.TimestampType()),
        tp.StructField("deleted", tp.BooleanType()),
        tp.StructField("reread", tp.BooleanType()),
        tp.StructField("values", _VALUES),
        tp.StructField("added", _ADDED),
        tp.StructField("record", _RECORD),
    ]
)
STORED = tp.StructType(
    [
        tp.StructField("key", _KEY),
        tp.StructField("values", _VALUES),
        tp.StructField("added", _ADDED),
        tp.StructField("_seq", SEQUENCE_TYPE),
        tp.StructField("__valid_from", tp.TimestampType()),
        tp.StructField("__valid_to", tp.TimestampType()),
        tp.StructField("_until", SEQUENCE_TYPE),
        tp.StructField("_seen", _SEEN),
    ]
)


@dataclass(frozen=True)
class Event:
    """A change of a key, or a row that is read again; ``name`` is None for a delete."""

    key: int
    pos: int
    name: str | None
    reread: bool = False


@dataclass(frozen=True)
class Version:
    """A version in the model; positions stand for sequences and for times."""

    pos: int
    name: str | None
    until: int | None


def at(pos: int) -> datetime:
    """Return the time of a position."""
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=pos)


def sequence(pos: int) -> tuple[int, ...]:
    """Return the sequence of a position: its parts are compared one after the other."""
    return (1, pos // 10, pos % 10, 0, 0)


def position(found: Row) -> int:
    """Return the position of a sequence."""
    return int(found["file"]) * 10 + int(found["pos"])


def model(events: Iterable[Event]) -> list[Version]:
    """Return the versions of one key: the slow, obvious way."""
    made: list[Version] = []
    now: str | None = None
    for event in sorted(set(events), key=lambda each: each.pos):
        if event.name == now and event.name is not None:
            continue
        if now is not None:
            made[-1] = Version(made[-1].pos, now, event.pos)
        elif event.name is None:
            made.append(Version(event.pos, None, event.pos))  # nothing is known of what was deleted
        if event.name is not None:
            made.append(Version(event.pos, event.name, None))
        now = event.name
    return made


def history(key: int, randomness: random.Random) -> list[Event]:
    """Return what happens to one key.

    Values come back once at most, or are repeated, but not both: of equal records only the first and last are kept.
    """
    repeats, events, now = randomness.random() < 0.5, [], None
    past: list[str] = []
    pos = randomness.randrange(5)
    for number in range(randomness.randrange(1, 9)):
        pos += randomness.randrange(1, 40)
        kinds = ["change"] if now is None else ["change", "change", "delete", *(["again", "reread"] if repeats else [])]
        kind = randomness.choice(kinds)
        if kind == "change":
            back = [] if repeats else [name for name in past if past.count(name) == 1 and name != now]
            now = back[0] if back and randomness.random() < 0.3 else f"{key}.{number}"
            past.append(now)
        elif kind == "delete":
            now = None
        events.append(Event(key, pos, now, kind == "reread"))
    if randomness.random() < 0.1:
        events.append(Event(key, 0, None))  # a delete of a row that was never read
    return events


def deliveries(events: Sequence[Event], randomness: random.Random) -> list[list[Event]]:
    """Return the events of a key in batches: in order or not, some of them repeated later."""
    order = list(events)
    if randomness.random() < 0.5:
        randomness.shuffle(order)
    else:
        order.sort(key=lambda each: each.pos)
    cuts = sorted(randomness.randrange(len(order) + 1) for _ in range(BATCHES - 1))
    batches = [order[start:end] for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    for number in range(1, BATCHES):
        if randomness.random() < 0.4:
            # A batch of before is read again, or a part of it, with another part of what follows.
            batches[number] = [*randomness.choice(batches[:number]), *batches[number]]
    return batches


class Table:
    """The rows of a table, by key and sequence."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.rows: dict[tuple[int, int], Row] = {}

    def write(self, events: Iterable[Event]) -> int:
        """Write a batch; return the number of rows that changed."""
        rows = [
            (
                (each.key,),
                sequence(each.pos),
                at(each.pos),
                each.name is None,
                each.reread,
                (each.key, each.name),
                ("r" if each.reread else "u",),
                (0, number, 0),
            )
            for number, each in enumerate(events)
        ]
        new = self._spark.createDataFrame(rows, EVENTS)
        names = STORED.names
        stored = self._spark.createDataFrame([tuple(row[name] for name in names) for row in self.rows.values()], STORED)
        few = len(self.rows) % 2 == 0
        changed = versions(affected_versions(stored, new, few=few), new).collect()
        for row in changed:
            identity = row["key"]["id"], position(row["_seq"])
            if row["_deleted"]:
                del self.rows[identity]  # only rows that are there are removed
            else:
                self.rows[identity] = row
        return len(changed)

    def versions(self) -> dict[int, list[Version]]:
        """Return the versions by key, in order; each row is checked in itself."""
        found: dict[int, list[Version]] = defaultdict(list)
        for (key, pos), row in sorted(self.rows.items()):
            until = None if row["_until"] is None else position(row["_until"])
            assert row["__current"] == (until is None)
            assert (row["__valid_to"] is None) == (until is None)
            assert row["__valid_from"].astimezone(UTC) == at(pos)
            assert until is None or row["__valid_to"].astimezone(UTC) == at(until)
            found[key].append(Version(pos, row["values"]["name"] if until != pos else None, until))
        return found


def test_few_events_do_not_shuffle_the_table(spark: SparkSession) -> None:
    """Spark knows the size of neither side: it would take both for large."""
    frames = (spark.createDataFrame([], schema) for schema in (STORED, EVENTS))
    with ExitStack() as stack:
        stored, events = (stack.enter_context(kept_rows(frame)) for frame in frames)
        found: Any = affected_versions(stored, events, few=True)
        plan = found._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan
    assert "SortMergeJoin" not in plan


def check_invariants(found: dict[int, list[Version]]) -> None:
    """Check that the versions of a key do not overlap, and that at most one is current."""
    for rows in found.values():
        for one, following in pairwise(rows):
            assert one.until is not None, rows
            assert one.until <= following.pos, rows


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_versions_are_those_of_the_model(spark: SparkSession, seed: int) -> None:
    """Whatever the order and the batches; a further repeat changes nothing."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    randomness = random.Random(seed)
    happened = {key: history(key, randomness) for key in range(KEYS)}
    batches: list[list[Event]] = [[] for _ in range(BATCHES)]
    for events in happened.values():
        for number, part in enumerate(deliveries(events, randomness)):
            batches[number] += part
    table = Table(session)
    for batch in batches:
        table.write(batch)
        check_invariants(table.versions())

    found = table.versions()
    wanted: dict[int, Any] = {key: model(events) for key, events in happened.items()}
    assert {key: found.get(key, []) for key in wanted} == wanted

    assert table.write([event for batch in batches[2:4] for event in batch]) == 0
