"""Where the capture ends by itself (``tailrace.stop.at``): in front of a transaction, with all before it in Kafka.

Invariant: what is written ends between two transactions, and the stored offset is the end of the last one, so that a
later start continues there. The first transaction that is not written begins at or behind a position, was committed at
or after a time, or follows when a set of transactions is complete. While an initial snapshot is running the stream goes
on: its splits may have changes from behind the position, and end only when their high watermarks are passed. So it does
while a transaction is ahead, or open, of which a killed producer has written a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from tailrace.producer.model.binlog_events import Event, PositionAdvanced, QueryEvent, TransactionBegin
from tailrace.producer.model.protocols import Offset, SnapshotSession, Source
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.runtime.errors import ConfigError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StopPoint:
    """All that ``target`` includes or follows is wanted, up to a transaction that was committed at ``time_us``."""

    target: Offset
    time_us: int | None = None

    @classmethod
    def of(cls, setting: str | datetime, source: Source, session: SnapshotSession) -> StopPoint:
        """Resolve the setting now. Raises ConfigError for a time that is ahead, or a position that the log cannot have.

        The end of the log, asked for when the clock of the source has passed a time, is behind all before that time.
        """
        time_us = None
        if isinstance(setting, datetime):
            time_us, now_us = int(setting.timestamp() * 1_000_000), session.clock_us()
            if time_us > now_us:
                now = datetime.fromtimestamp(now_us / 1_000_000, UTC)
                raise ConfigError(
                    [f"tailrace.stop.at: {setting.isoformat()} is ahead: the clock of the source is at {now:%FT%TZ}"]
                )
        found = source.named_offset("latest" if isinstance(setting, datetime) else setting)
        log.info("the capture will end by itself", stop_at=str(setting), **found.to_json())
        return cls(found, time_us)

    def read(
        self,
        events: list[Event],
        offset: StreamOffset,
        read: Callable[[list[Event]], object],
        may_stop: Callable[[], bool],
    ) -> bool:
        """Read one transaction after the other; return whether the stream stops behind what is read.

        The events of a transaction are read when those before it are passed in ``offset``.
        """
        first = 0
        for at, event in enumerate(events):
            if isinstance(event, TransactionBegin) or (isinstance(event, QueryEvent) and not event.in_transaction):
                if at > first:
                    read(events[first:at])
                    first = at
                if not offset.has_resumed and self._precedes(event, offset.position) and may_stop():
                    return self._stop(offset)
        read(events[first:])
        between = offset.transaction is None and not offset.has_resumed
        return between and offset.position.reaches(self.target) and may_stop() and self._stop(offset)

    def _stop(self, offset: StreamOffset) -> bool:
        log.info("the capture ends at tailrace.stop.at", **offset.position.to_json())
        return True

    def _precedes(self, event: TransactionBegin | QueryEvent, position: Offset) -> bool:
        """Return whether all that is wanted is before a transaction; ``position`` is the end of the one before it."""
        if self.time_us is not None and (event.commit_ts_us or event.ts * 1_000_000) >= self.time_us:
            return True
        return position.advanced_to(PositionAdvanced(event.file, event.pos, event.ts)).reaches(self.target)
