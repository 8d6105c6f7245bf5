"""Compares the END certificates of splits with what the topic of a table holds of them; rules without I/O.

A certificate tells the rows and the backfill of its split, and the sum of the checksums of its rows. Kafka removes no
record of a topic that is not compacted and begins at offset 0. In a compacted one, a record that a later one of its key
replaces can be gone: whether fewer records are a fault is then not known, unless more are missing than are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.spark_consumer.normalize.split_progress import RunProgress

if TYPE_CHECKING:
    from tailrace.schemas.sequence import Sequence
    from tailrace.spark_consumer.source.watermarks import SplitEnd


class SplitResult(StrEnum):
    """How a split and its certificate compare."""

    EQUAL = "equal"
    MISSING = "missing"
    """The topic has fewer records than the certificate says."""
    EXTRA = "extra"
    """It has more, or records of a split that was never announced."""
    DIFFERENT = "different"
    """It has as many, and other rows; or more of one kind and fewer of the other."""
    COMPACTED = "compacted"
    """It has fewer, and Kafka may have removed them because later ones replace them."""
    WITHOUT_END = "without_end"
    """It has records of a split whose certificate is not written yet, or is lost."""


FAULTS: Final = frozenset({SplitResult.MISSING, SplitResult.EXTRA, SplitResult.DIFFERENT})


class HeldSplit(NamedTuple):
    """What a topic holds of a split."""

    rows: int = 0
    backfill: int = 0
    checksum: int | None = 0
    """Sum of the checksums of the rows; None if it is not known, because the records are not plain JSON."""
    unreadable: int = 0
    """Records without a known operation: they count as neither."""


class ComparedSplit(NamedTuple):
    """A split that is not equal."""

    split: str
    result: SplitResult
    end: SplitEnd | None
    held: HeldSplit


@dataclass(slots=True)
class SnapshotResult:
    """What is known of the snapshot of one table."""

    counts: Counter[SplitResult] = field(default_factory=Counter)
    """Splits by result."""
    unequal: list[ComparedSplit] = field(default_factory=list)
    rows: int = 0
    """Rows of the splits that are equal."""
    former: int = 0
    """Splits of former tables of the name: readers have no row of them, so they are neither a proof nor a fault."""
    without_checksum: int = 0
    """Equal splits of which only the numbers were compared."""
    run: RunProgress | None = None
    """The splits with certificates of the run that must cover all keys; None: there is none."""
    covers: bool = True
    """Whether such a run covers all keys: the last initial snapshot, or, behind CREATED, an initial one since then."""

    @property
    def different(self) -> bool:
        """Whether a split is certainly not what its certificate says."""
        return any(self.counts[each] for each in FAULTS)

    @property
    def undecided(self) -> int:
        """How many splits may be what their certificates say, or not."""
        return self.counts[SplitResult.COMPACTED] + self.counts[SplitResult.WITHOUT_END]

    @property
    def decided(self) -> bool:
        """Whether everything is known."""
        return self.covers and not self.undecided


def compare_splits(
    ends: Iterable[SplitEnd],
    held: Mapping[str, HeldSplit],
    begun: Iterable[str],
    *,
    created: Sequence | None = None,
    gone: int | None = None,
) -> SnapshotResult:
    """Compare the certificates of a topic with what it holds.

    ``begun``: the splits that have a LOW watermark, of those that the topic holds. ``created``: where the table begins
    (``Certificates``). ``gone``: how many records Kafka may have removed; None: the topic is not compacted.
    """
    found = SnapshotResult()
    certified = {end.split: end for end in ends}
    current = {name: end for name, end in certified.items() if created is None or end.high >= created}
    former = certified.keys() - current.keys()
    found.former = len(former)
    announced = certified.keys() | set(begun)
    for name in sorted(current.keys() | (held.keys() - former)):
        end, has = current.get(name), held.get(name, HeldSplit())
        if end is None:
            result = SplitResult.WITHOUT_END if name in announced else SplitResult.EXTRA
        else:
            result = _result(end, has)
        if end is not None and result is SplitResult.EQUAL:
            found.counts[result] += 1
            found.rows += end.rows
            found.without_checksum += has.checksum is None
        else:
            found.unequal.append(ComparedSplit(name, result, end, has))
    if gone is not None and _missing(found.unequal) <= gone:
        found.unequal = [
            each._replace(result=SplitResult.COMPACTED) if each.result is SplitResult.MISSING else each
            for each in found.unequal
        ]
    found.counts.update(each.result for each in found.unequal)
    # An incremental run may have read some rows of its range only (a filter, keys), and its certificates do not say so.
    runs = _runs(end for end in current.values() if not end.incremental)
    found.run = runs[-1] if runs else None
    if created is not None:
        found.covers = any(run.complete for run in runs)
    elif runs:
        found.covers = runs[-1].complete
    return found


def _result(end: SplitEnd, has: HeldSplit) -> SplitResult:
    fewer = has.rows < end.rows or has.backfill < end.backfill
    more = has.rows > end.rows or has.backfill > end.backfill
    if fewer or more:
        return SplitResult.DIFFERENT if fewer and more else SplitResult.EXTRA if more else SplitResult.MISSING
    if has.unreadable:
        return SplitResult.EXTRA
    return SplitResult.EQUAL if has.checksum in {None, end.checksum} else SplitResult.DIFFERENT


def _missing(splits: Iterable[ComparedSplit]) -> int:
    """Return how many records the splits lack that have fewer than their certificates say."""
    return sum(
        each.end.rows - each.held.rows + each.end.backfill - each.held.backfill
        for each in splits
        if each.end is not None and each.result is SplitResult.MISSING
    )


def _runs(ends: Iterable[SplitEnd]) -> list[RunProgress]:
    """Return the progress of each run, the one of the last certificate last."""
    runs: dict[str, RunProgress] = {}
    for end in ends:
        runs[end.run] = runs.pop(end.run, RunProgress()).adding(end)
    return list(runs.values())
