"""When tables are due for upkeep."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from types import SimpleNamespace
from typing import Any

from tailrace.spark_consumer.sink.table_upkeep import Upkeep


class Counted(Upkeep[Any]):
    """Tables with a number of commits."""

    def __init__(self, batches: int, commits: dict[str, int]) -> None:
        super().__init__(batches)
        self.commits = commits
        self.tended: list[str] = []

    def _commits(self, table: Any) -> int:
        return self.commits[table.name]

    def _tend(self, spark: Any, table: Any) -> None:  # noqa: ARG002
        self.tended.append(table.name)


def write(upkeep: Counted, names: list[str], commits: int = 1) -> list[str]:
    """Write a batch to some tables; return the tables that are tended after it."""
    before = len(upkeep.tended)
    for name in names:
        upkeep.commits[name] += commits
        upkeep.after_batch(SimpleNamespace(name=name))
    while upkeep.tend(None, lambda _: nullcontext()):  # type: ignore[arg-type]
        pass
    return upkeep.tended[before:]


def test_tables_of_the_same_batches_are_due_in_different_ones() -> None:
    names = [f"shop.table_{number}" for number in range(40)]
    upkeep = Counted(10, dict.fromkeys(names, 0))
    for name in names:
        upkeep.opened(SimpleNamespace(name=name))

    for _ in range(3):
        tended = [write(upkeep, names) for _ in range(10)]
        assert sorted(chain(*tended)) == sorted(names)
        assert max(map(len, tended)) <= 10


def test_each_process_goes_on_with_the_commits_of_the_table() -> None:
    for commits in (1, 2, 3):
        known: dict[str, int] = {"t": 0}
        tended = []
        for _ in range(24):
            upkeep = Counted(4, known)
            upkeep.opened(SimpleNamespace(name="t"))
            tended += write(upkeep, ["t"], commits)
        assert len(tended) == 24 * commits // 4


def test_zero_is_never() -> None:
    upkeep = Counted(0, {"t": 0})

    assert [write(upkeep, ["t"]) for _ in range(5)] == [[]] * 5
