"""Compares the Delta tables of a soak with their source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.soak.tables import Row, from_source, key_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConsumerVerdict(NamedTuple):
    """What the tables show."""

    rows: int
    lost: int
    """Rows that a table lacks, or has with other values."""
    doubled: int
    """Rows that a table has more than once, or that the source has deleted."""
    problems: tuple[str, ...]


def verify(spark: SparkSession, tables: Path, source: Mapping[str, Mapping[str, Row]]) -> ConsumerVerdict:
    """Compare all tables."""
    verdicts = []
    for name, expected in source.items():
        rows = spark.read.format("delta").load(str(tables / name)).drop("_seq").collect()
        values = ({k: bytes(v) if isinstance(v, bytearray) else v for k, v in row.asDict().items()} for row in rows)
        verdicts.append(compare(name, map(from_source, values), expected))
    return ConsumerVerdict(
        sum(each.rows for each in verdicts),
        sum(each.lost for each in verdicts),
        sum(each.doubled for each in verdicts),
        tuple(problem for each in verdicts for problem in each.problems),
    )


def compare(name: str, rows: Iterable[Row], expected: Mapping[str, Row]) -> ConsumerVerdict:
    """Compare one table."""
    found: dict[str, Row] = {}
    counts = Counter[str]()
    for row in rows:
        key = key_text(name, row)
        counts[key] += 1
        found[key] = row
    repeated = {key: count for key, count in counts.items() if count > 1}
    deleted = sorted(found.keys() - expected.keys())
    differing = sorted(key for key, row in expected.items() if found.get(key) != row)
    problems = [f"{name}: {key} is there {count} times" for key, count in repeated.items()]
    problems += [f"{name}: {key} was deleted, the table has {found[key]}" for key in deleted]
    problems += [f"{name}: {key}: the table has {found.get(key)}, the source {expected[key]}" for key in differing]
    doubled = sum(repeated.values()) - len(repeated) + len(deleted)
    return ConsumerVerdict(len(expected), len(differing), doubled, tuple(problems))
