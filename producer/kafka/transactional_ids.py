"""Transactional ids of the producers of a prefix: with them a new instance fences the one before it."""

from __future__ import annotations


def stream_transactional_id(prefix: str) -> str:
    """Return the transactional id of the binlog stream."""
    return f"{prefix}-tailrace-stream"


def reader_transactional_id(prefix: str, worker: int) -> str:
    """Return the transactional id of a snapshot reader."""
    return f"{prefix}-tailrace-snapshot-{worker}"
