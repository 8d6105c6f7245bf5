"""Where the stream resumes: the stored offset, also on another server of the same history, or a new start."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import structlog

from tailrace.producer.errors import BinlogError, SourceBehindError, SourceUnavailableError
from tailrace.producer.kafka.moved_position import MovedPosition
from tailrace.producer.kafka.state_store import State, StoredOffset
from tailrace.producer.model.binlog_events import TransactionMark
from tailrace.producer.model.protocols import Offset, Source
from tailrace.runtime.errors import ConfigError

log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0
_LOG_S: Final = 10.0
"""How often the wait for a server that is behind is logged."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where the stream starts."""

    offset: StoredOffset
    jumps: bool = False
    """The stream does not go on at the stored offset, in a new epoch: what waits for a part of the log is given up."""
    reads: bool = False
    """Every table must be read again: changes are lost."""
    lost: str = ""
    """Why changes up to the offset are lost; empty: they are not, or a signal has left them out."""
    end: Offset | None = None
    """The end of the binlog if the epoch is a new one: splits that were read before it are compared with this."""


@dataclass(frozen=True, slots=True)
class ResumeRules:
    """What the configuration says about resuming."""

    if_lost: Literal["fail", "read", "continue"]
    """If the stored offset cannot be resumed: fail, or start at the end of the binlog, and read the tables again."""
    wait_s: float
    """How long to wait for a server that has not executed all that was read."""
    uncounted: str
    """Operations that are not written."""
    first_epoch: int = 1
    """The epoch of a first start."""
    start_at: str | None = None
    """Where the first start begins; None: at the end of the binlog."""


def resume_point(source: Source, state: State, rules: ResumeRules, stopped: threading.Event) -> ResumePoint:
    """Return the stored offset, or the end of the binlog on the first start.

    Raises BinlogError if the source no longer has the binlog behind the stored offset, or is another source;
    ConfigError if it does not have the place of a first start; SourceUnavailableError if it changes meanwhile, or the
    process is stopped while it waits for the source.
    """
    stored = state.offset
    if stored is None and rules.start_at:
        try:
            return ResumePoint(StoredOffset(source.earlier_offset(rules.start_at, epoch=rules.first_epoch)))
        except ConfigError as error:
            oldest = "" if rules.start_at == "earliest" else "; earliest is the oldest place that the binlog has"
            raise ConfigError([f"tailrace.start.at: {problem}{oldest}" for problem in error.problems]) from error
    if stored is None:
        return ResumePoint(StoredOffset(source.start_offset(epoch=rules.first_epoch)))
    if rules.start_at:
        log.info("tailrace.start.at is for the first start of a prefix: the stream resumes", start_at=rules.start_at)
    if state.moved is not None and (moved := _moved(source, state.moved, stored, rules, stopped)) is not None:
        return ResumePoint(StoredOffset(moved), jumps=True)
    try:
        position = _wait_for_source(source, stored, _required(state), rules.wait_s, stopped)
    except BinlogError as error:
        if rules.if_lost == "fail":
            raise
        # The epoch grows, so that everything read from here on sorts after everything read before.
        position = source.start_offset(epoch=stored.position.epoch + 1)
        if rules.if_lost == "read":
            log.warning(
                "the stored offset cannot be resumed: changes since then are lost, all tables are read again, and "
                "readers are told that the earlier rows of the tables are gone",
                reason=error,
            )
        else:
            log.error(
                "the stored offset cannot be resumed: changes up to the end of the binlog are lost",
                lost_from=stored.position.to_json(),
                lost_to=position.to_json(),
                reason=error,
                hint="request a snapshot of the tables that changed: topics and targets keep rows that are deleted or "
                "different by now; or set snapshot.mode=when_needed for the next time",
            )
        return ResumePoint(StoredOffset(position), jumps=True, reads=rules.if_lost == "read", lost=str(error))
    if position.epoch == stored.position.epoch:
        return ResumePoint(replace(stored, position=position))
    marks = tuple(mark for mark in stored.transactions if _can_align(mark, rules.uncounted))
    relocated = tuple(replace(mark, relocated=True) for mark in marks)
    offset = replace(stored, position=position, transactions=relocated, last=None)
    end = source.end_offset(epoch=position.epoch)
    if not end.same_server(position):
        raise SourceUnavailableError("the source server changed while the stream was located on it")
    return ResumePoint(offset, end=end)


def _moved(
    source: Source, moved: MovedPosition, stored: StoredOffset, rules: ResumeRules, stopped: threading.Event
) -> Offset | None:
    """Return where a signal has set the stream; None: it goes on where it was."""
    target = moved.position
    if moved.origin != stored.position:
        log.error(
            "a signal has set the position of the stream, which an earlier program has not done and has gone on: the "
            "signal is not done any more",
            hint="send the signal set-binlog-position again, if it still holds",
            moved_to=target.to_json(),
            moved_from=moved.origin.to_json(),
            stored=stored.position.to_json(),
        )
        return None
    try:
        position = _wait_for_source(source, StoredOffset(target), [stored.position], rules.wait_s, stopped)
    except BinlogError as error:
        log.error(
            "the stream cannot begin where a signal has set it, and goes on where it was",
            reason=error,
            **target.to_json(),
        )
        return None
    log.warning("the stream begins where a signal has set it", **position.to_json())
    return position


def _wait_for_source(
    source: Source, stored: StoredOffset, required: Sequence[Offset], wait_s: float, stopped: threading.Event
) -> Offset:
    """Return the offset to resume from; waits for a server that still applies what was read from another one."""
    started = [mark.gtid for mark in stored.transactions]
    deadline = time.monotonic() + wait_s
    logged = 0.0
    while True:
        try:
            return source.resume_offset(stored.position, started=started, required=required, last=stored.last)
        except SourceBehindError as error:
            now = time.monotonic()
            if now >= deadline:
                raise
            if now - logged >= _LOG_S:
                logged = now
                missing = error.context.get("missing")
                log.warning(
                    "waiting for transactions that were read before", missing=missing, seconds_left=int(deadline - now)
                )
        if stopped.wait(_RETRY_S):
            raise SourceUnavailableError("stopped while the source had not executed all that was read before")


def _required(state: State) -> Sequence[Offset]:
    """Return what the topics may contain besides what is before the offset: of splits, and of what is read again."""
    marks = [mark for stored in state.splits.values() for split in stored.splits for mark in (split.low, split.high)]
    return marks if state.replay is None else [*marks, state.replay.until]


def _can_align(mark: TransactionMark, uncounted: str) -> bool:
    """Return whether the rows of a partly written transaction can be counted on another server."""
    if mark.table_rows is not None and mark.uncounted == uncounted:
        return True
    log.warning(
        "a transaction that is partly written is written again from its beginning: its rows cannot be counted",
        gtid=mark.gtid,
        reason="its rows were not counted" if mark.table_rows is None else "skipped.operations changed",
    )
    return False
