"""Hooks for tests at four moments of reading a split; empty in production."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.producer.model.split import Split


def _nothing(split: Split) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class SnapshotHooks:
    """Called by the snapshot reader with its split; an exception fails the reader."""

    before_low: Callable[[Split], None] = _nothing
    after_low: Callable[[Split], None] = _nothing
    before_high: Callable[[Split], None] = _nothing
    after_high: Callable[[Split], None] = _nothing


NO_HOOKS = SnapshotHooks()
