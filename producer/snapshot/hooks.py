"""The four moments of a split's window at which a test can act. Always empty in normal operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.producer.model.split import Split


def _nothing(split: Split) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class SnapshotHooks:
    """Called in the snapshot reader with the split whose window it is; whatever a hook raises fails the reader."""

    before_low: Callable[[Split], None] = _nothing
    after_low: Callable[[Split], None] = _nothing
    before_high: Callable[[Split], None] = _nothing
    after_high: Callable[[Split], None] = _nothing


NO_HOOKS = SnapshotHooks()
