"""Progress of a snapshot: counts over several batches, complete splits as ranges, complete runs."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tailrace.runtime.errors import KafkaRequestError
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.normalize.split_progress import SplitCounts, SplitProgress, SplitStats
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.watermarks import SplitEnd, SplitEnds

HIGH = Sequence(1, 7, 10, 0, 0)


def stats(split: str | None, rows: int = 0, changes: int = 0) -> SplitStats:
    """Return the counts of one split in a batch."""
    return SplitStats(split, rows, changes, None)


def end(number: int, rows: int = 0, backfill: int = 0, *, last: int | None = None, run: str = "run1") -> SplitEnd:
    """Return a certificate; the split ``last`` ends at the greatest planned key, and -1 is above it."""
    lower = None if number == 0 else f"[{number}]"
    return SplitEnd(
        "p.d.t",
        f"{run}:{number}",
        run,
        number,
        rows,
        backfill,
        HIGH,
        lower,
        f"[{number + 1}]",
        number == last,
        number < 0,
    )


def test_checksums_add_up_and_are_compared() -> None:
    """Unless a part of the rows has none."""
    parts = [stats("run1:0", 1)._replace(checksum=40), stats("run1:0", 1)._replace(checksum=2)]
    counted = SplitProgress().advance(parts, []).progress
    counted = SplitProgress.from_json(json.loads(json.dumps(counted.to_json())))
    assert counted.open == {"run1:0": SplitCounts(2, 0, 42)}

    assert counted.advance([], [replace(end(0, 2), checksum=42)]).completed
    other = counted.advance([], [replace(end(0, 2), checksum=43)])
    assert (other.completed, [each.split for each in other.different]) == ({}, ["run1:0"])
    assert counted.advance([], [replace(end(0, 2), checksum=43)], accept=["run1:0"]).completed
    unknown = counted.advance([stats("run1:0", 1)._replace(checksum=None)], [replace(end(0, 3), checksum=43)])
    assert unknown.completed


def test_counts_add_up_over_batches() -> None:
    progress = SplitProgress()
    for rows, changes in ((3, 0), (2, 1)):
        step = progress.advance([stats("run1:0", rows, changes), stats(None, 0, 9)], [end(0, 5, 2)])
        assert step.completed == {}
        progress = SplitProgress.from_json(json.loads(json.dumps(step.progress.to_json())))
    assert progress.open == {"run1:0": SplitCounts(5, 1)}
    assert [(each.rows, each.backfill) for each in step.missing] == [(0, 1)]

    step = progress.advance([stats("run1:0", 0, 1)], [end(0, 5, 2)])

    assert step.completed == {"run1:0": HIGH}
    assert step.progress.open == {}
    # After a restart all certificates are read again.
    repeated = step.progress.advance([], [end(0, 5, 2)])
    assert (repeated.completed, repeated.progress) == ({}, step.progress)


def test_more_records_than_the_certificate_says_is_an_error() -> None:
    before = SplitProgress({"run1:0": SplitCounts(3, 0)})
    hint = "check for another writer to the topic; a producer without transactions repeats records"
    with pytest.raises(KafkaRequestError, match=rf"split run1:0 has more records(?s:.*){hint}"):
        before.advance([stats("run1:0", 1)], [end(0, 3)])


def test_missing_records_can_be_accepted() -> None:
    step = SplitProgress({"run1:0": SplitCounts(3, 0)}).advance([], [end(0, 5)], accept=["run1:0"])

    assert step.completed == {"run1:0": HIGH}
    assert step.missing == ()


@pytest.mark.parametrize("seed", range(5))
def test_run_is_complete_when_its_splits_cover_the_key(seed: int) -> None:
    """Whatever the order of the certificates; the progress does not grow with the number of splits."""
    ends = [end(number, last=99) for number in range(-1, 100)]
    random.Random(seed).shuffle(ends)
    progress = SplitProgress()
    for each in ends:
        assert not progress.complete
        progress = progress.advance([], [each]).progress

    assert progress.complete
    assert not progress.loading
    assert len(json.dumps(progress.to_json())) < 200


def test_split_of_an_empty_table_is_a_complete_run() -> None:
    whole = SplitEnd("p.d.t", "run1:0", "run1", 0, 0, 0, HIGH, None, None)

    assert SplitProgress().advance([], [whole]).progress.complete


def test_restarted_run_does_not_count_with_the_former_one() -> None:
    progress = SplitProgress().advance([], [end(0, last=1), end(-1, last=1), end(1, last=1, run="run2")]).progress

    assert (progress.loading, progress.complete) == (True, False)
    assert progress.advance([], [end(1, last=1)]).progress.complete


def test_certificates_are_kept_until_their_split_is_complete() -> None:
    ends = SplitEnds(ControlTopic("p.tailrace.watermarks", {}))
    ends.add([end(0), end(1)])
    assert ends.topics() == {"p.d.t"}

    ends.release("p.d.t", ["run1:0"])
    assert list(ends.pending("p.d.t")) == ["run1:1"]
    ends.release("p.d.t", ["run1:1"])
    assert ends.pending("p.d.t") == {}
