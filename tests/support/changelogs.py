"""Changelogs for tests of operators: arrival orders, cuts into micro-batches, a slow reference, a stream of files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")

ARRIVALS: Final[Mapping[str, Sequence[tuple[str, int, int, str]]]] = {
    "a": [("+I", 1, 10, "a1"), ("-U", 1, 10, "a1"), ("+U", 1, 20, "b1")],
    "b": [("+U", 1, 20, "b1"), ("+I", 1, 10, "a1"), ("-U", 1, 10, "a1")],
    "c": [("+I", 1, 10, "a1"), ("+U", 1, 20, "b1"), ("-U", 1, 10, "a1")],
}
"""How the entries of a join can arrive after a shuffle when the join key of row 1 changes from 10 to 20."""


def cuts(entries: Sequence[_T]) -> Iterator[list[list[_T]]]:
    """Yield every way to cut a changelog into micro-batches, the order kept."""
    inner = range(1, len(entries))
    for count in range(len(inner) + 1):
        for chosen in combinations(inner, count):
            bounds = [0, *chosen, len(entries)]
            yield [list(entries[low:high]) for low, high in pairwise(bounds)]


def last_row(entries: Sequence[tuple[bool, str, str]]) -> str | None:
    """Return the row that a target has after entries (is an add, upsert key, row), or None.

    By definition and slowly: of the adds that no later add of their key replaces and no retract removes, the last one.
    Where the key is the row itself, an add replaces nothing, and each retract removes the first add that is left.
    """
    alive: list[int] = []
    for at, (is_add, key, _) in enumerate(entries):
        same = [each for each in alive if entries[each][1] == key]
        by_row = key == entries[at][2]
        if is_add:
            alive = [each for each in alive if by_row or each not in same] + [at]
        else:
            alive = [each for each in alive if each not in same[:1]]
    return entries[max(alive)][2] if alive else None


class FileStream:
    """A stream whose micro-batches a test decides: one file each."""

    def __init__(self, folder: Path, schema: str) -> None:
        self._folder, self._schema = folder, schema
        self._files = 0
        folder.mkdir()

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add one micro-batch."""
        self._files += 1
        path = self._folder / f".{self._files}"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        # The source reads files in the order of their times.
        os.utime(path, (1_700_000_000 + self._files, 1_700_000_000 + self._files))
        path.rename(self._folder / f"{self._files:05d}.json")

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the stream."""
        return spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1).json(str(self._folder))
