"""What runs in Spark's Python workers: one call per group or join key that a micro-batch changes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tailrace.spark_consumer.streams.state_rows import JoinedRows, KeptRow, KeptRows, RowEntry, SideEntry, SideRow

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle

_log = logging.getLogger(__name__)

STATE: Final = "rows"
_STATE_SCHEMA: Final = "version BIGINT, rows ARRAY<STRUCT<order: ARRAY<BIGINT>, upsert_key: STRING, row: STRING>>"


class UpsertMaterializer(StatefulProcessor):
    """Keeps the rows of each target key, and emits the change of the last one.

    Input: ``bucket``, ``target_key``, then the fields of ``RowEntry``. Output: ``before``, ``after``, ``version``.
    """

    SCHEMA: Final = "before STRING, after STRING, version BIGINT"

    def __init__(self, *, keyed: bool, ignore_late: bool) -> None:
        self._keyed, self._ignore_late = keyed, ignore_late
        self._unmatched = 0

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getMapState(STATE, "key STRING", _STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Apply the entries that a micro-batch has for the target keys of one bucket."""
        entries: dict[str, list[RowEntry]] = defaultdict(list)
        for row in rows:
            entries[row[1]].append(RowEntry(*row[2:]))
        for target_key, found in entries.items():
            change = self._apply(target_key, found)
            if change is not None:
                yield change

    def _apply(self, target_key: str, entries: Iterable[RowEntry]) -> Row | None:
        version, stored = self._state.getValue((target_key,)) or (0, [])
        kept = KeptRows((KeptRow(*row) for row in stored), keyed=self._keyed, ignore_late=self._ignore_late)
        before = kept.last
        kept.apply(entries)
        self._unmatched += kept.unmatched
        after = kept.last
        if after != before:
            version += 1
        if kept.rows:
            # Plain tuples: Spark makes new ones of their elements, which a NamedTuple does not allow.
            self._state.updateValue((target_key,), (version, [tuple(row) for row in kept.rows]))
        elif stored:
            self._state.removeKey((target_key,))
        return Row(before=before, after=after, version=version) if after != before else None

    def close(self) -> None:
        """Log what this task has dropped."""
        _log_unmatched(self._unmatched)


class InnerJoin(StatefulProcessor):
    """Keeps the rows of each join key on both sides, and emits the changelog of the join.

    Input: ``join_key``, then the fields of ``SideEntry``. Output: the fields of ``JoinChange``.
    """

    SCHEMA: Final = "kind STRING, left STRING, right STRING, order ARRAY<BIGINT>"

    def __init__(self) -> None:
        self._unmatched = 0

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._sides = [
            handle.getMapState(name, "key STRING", "order ARRAY<BIGINT>, row STRING") for name in ("left", "right")
        ]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Apply the entries that a micro-batch has for one join key."""
        left, right = (_MapRows(state) for state in self._sides)
        joined = JoinedRows(left, right)
        for change in joined.apply(SideEntry(*row[1:]) for row in rows):
            yield Row(**change._asdict())
        self._unmatched += joined.unmatched

    def close(self) -> None:
        """Log what this task has dropped."""
        _log_unmatched(self._unmatched)


class _MapRows:
    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, key: str) -> SideRow | None:
        found = self._state.getValue((key,))
        return None if found is None else SideRow(*found)

    def items(self) -> Iterable[tuple[str, SideRow]]:
        return ((key[0], SideRow(*value)) for key, value in self._state.iterator())

    def put(self, key: str, row: SideRow) -> None:
        self._state.updateValue((key,), tuple(row))

    def remove(self, key: str) -> None:
        self._state.removeKey((key,))


def _log_unmatched(count: int) -> None:
    if count:
        _log.warning("dropped retracts without a matching row: %d", count)
