"""Where a start resumes when the source is another server, by what the source answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.producer.app.resume import ResumePoint, ResumeRules, resume_point
from tailrace.producer.errors import BinlogError, SourceBehindError, SourceUnavailableError
from tailrace.producer.kafka.moved_position import MovedPosition, ReplayedPart
from tailrace.producer.kafka.state_store import State, StoredOffset
from tailrace.producer.model.binlog_events import TransactionCommit, TransactionMark
from tailrace.producer.model.protocols import Offset
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.resume import require_gtids_since

UUID = "58e3a85e-e597-11f1-8ae5-02fc00000001"
STORED = MySqlOffset(3, "binlog.000007", 450, GtidSet.parse(f"{UUID}:1-8"), "old")
MOVED = MySqlOffset(4, "binlog.000001", 4, STORED.gtids, "new")
END = MySqlOffset(4, "binlog.000002", 900, GtidSet.parse(f"{UUID}:1-12"), "new")
MARK = TransactionMark(f"{UUID}:9", 3, 530, table_rows={"d.a": 10}, uncounted="t")
LAST = TransactionCommit(f"{UUID}:8", "binlog.000007", 450, 1_790_000_000)
RULES = ResumeRules(if_lost="fail", wait_s=0.0, uncounted="t")


class Answers:
    """A source that gives prepared answers."""

    def __init__(self, *positions: Offset | SourceBehindError, end: MySqlOffset = END) -> None:
        self.positions = list(positions)
        self.end = end
        self.queried: Sequence[str] = ()

    def resume_offset(
        self, stored: Offset, *, started: Sequence[str], required: Sequence[Offset], last: TransactionCommit | None
    ) -> Offset:
        assert stored == STORED
        assert last == LAST
        assert not required
        self.queried = started
        answer = self.positions.pop(0)
        if isinstance(answer, SourceBehindError):
            raise answer
        return answer

    def end_offset(self, *, epoch: int) -> Offset:
        assert epoch == MOVED.epoch
        return self.end


def resumed(source: Answers, mark: TransactionMark = MARK, rules: ResumeRules = RULES) -> ResumePoint:
    state = State(offset=StoredOffset(STORED, (mark,), LAST))
    return resume_point(source, state, rules, threading.Event())  # type: ignore[arg-type]


def test_same_numbering_keeps_the_offset() -> None:
    source = Answers(STORED)

    assert resumed(source) == ResumePoint(StoredOffset(STORED, (MARK,), LAST))
    assert source.queried == [MARK.gtid]


def test_another_server_counts_rows() -> None:
    assert resumed(Answers(MOVED)) == ResumePoint(StoredOffset(MOVED, (replace(MARK, relocated=True),)), end=END)


@pytest.mark.parametrize("mark", [replace(MARK, table_rows=None), replace(MARK, uncounted="d,t")])
def test_rows_that_cannot_be_counted_are_not_skipped(mark: TransactionMark) -> None:
    assert resumed(Answers(MOVED), mark).offset == StoredOffset(MOVED, ())


def test_a_server_that_changes_meanwhile_is_located_twice() -> None:
    with pytest.raises(SourceUnavailableError, match="changed while"):
        resumed(Answers(MOVED, end=END._replace(server_uuid="third")))


def test_a_server_that_is_behind_is_waited_for() -> None:
    behind = SourceBehindError("behind", missing=f"{UUID}:8")

    with pytest.raises(SourceBehindError):
        resumed(Answers(behind))
    assert resumed(Answers(behind, STORED), rules=replace(RULES, wait_s=60.0)).offset.position == STORED


def test_a_position_of_a_signal_that_an_earlier_program_has_passed_is_dropped() -> None:
    """It did not know the record, and has read on: the stream would go back for a signal of long ago."""
    state = State(offset=StoredOffset(STORED, (MARK,), LAST), moved=MovedPosition(MOVED, STORED._replace(pos=400)))
    with capture_logs() as logs:
        found = resume_point(Answers(STORED), state, RULES, threading.Event())  # type: ignore[arg-type]
    assert (found.offset, found.jumps) == (state.offset, False)
    assert "send the signal set-binlog-position again" in logs[0]["hint"]


def test_a_server_must_have_the_replayed_part() -> None:
    """The offset is before it, and the topics have it."""

    class Source(Answers):
        required: Sequence[Offset] = ()

        def resume_offset(
            self, stored: Offset, *, started: Sequence[str], required: Sequence[Offset], last: TransactionCommit | None
        ) -> Offset:
            self.required = required
            return super().resume_offset(stored, started=started, required=(), last=last)

    source = Source(STORED)
    state = State(offset=StoredOffset(STORED, (MARK,), LAST), replay=ReplayedPart(END))
    assert resume_point(source, state, RULES, threading.Event()).offset == state.offset  # type: ignore[arg-type]
    assert source.required == [END]


class Purged(Answers):
    """A source whose binlog lacks the position that a signal has set."""

    def resume_offset(
        self, stored: Offset, *, started: Sequence[str], required: Sequence[Offset], last: TransactionCommit | None
    ) -> Offset:
        if stored == MOVED:
            raise BinlogError("the source has purged binlog files that were not read yet")
        return super().resume_offset(stored, started=started, required=required, last=last)


def test_a_position_of_a_signal_that_is_gone_leaves_the_stored_offset() -> None:
    """A start must find a way on."""
    state = State(offset=StoredOffset(STORED, (MARK,), LAST), moved=MovedPosition(MOVED, STORED))
    with capture_logs() as logs:
        found = resume_point(Purged(STORED), state, RULES, threading.Event())  # type: ignore[arg-type]
    assert (found.offset, found.jumps) == (state.offset, False)
    assert [entry["log_level"] for entry in logs] == ["error"]


class Session:
    """A connection to a server that had other values of gtid_mode for a while: the driver with prepared answers."""

    host = "h"

    def __init__(self, files: Mapping[str, tuple[str, str]]) -> None:
        """``files``: of each the GTIDs before it, and the type of its first event behind them."""
        self.answers: dict[str, Sequence[Sequence[object]]] = {"SHOW BINARY LOGS": [(file, 9) for file in files]}
        for file, (before, first) in files.items():
            events = (file, 4, "Format_desc", 1, 126, ""), (file, 126, "Previous_gtids", 1, 190, before)
            self.answers[f"SHOW BINLOG EVENTS IN '{file}' LIMIT 4"] = [*events, (file, 190, first, 1, 250, "")]

    def escape(self, text: str) -> str:
        return f"'{text}'"

    @contextmanager
    def cursor(self) -> Iterator[Session]:
        yield self

    def execute(self, sql: str, _values: object = None) -> None:
        self.found = self.answers[sql]

    def fetchall(self) -> Sequence[Sequence[object]]:
        return self.found


@pytest.mark.parametrize(
    ("after", "first", "lost"),
    [("1-8", "Anonymous_Gtid", True), ("1-8", "Gtid", False), ("1-9", "Anonymous_Gtid", False)],
)
def test_transactions_without_gtids_behind_the_offset_are_not_passed_over(after: str, first: str, lost: bool) -> None:
    """A server begins with the newest file that has no other GTIDs before it. An earlier file was read."""
    earlier, last = ("", "Anonymous_Gtid"), (f"{UUID}:{after}", "Gtid")
    session: Any = Session(
        {"binlog.000006": earlier, "binlog.000007": earlier, "binlog.000008": (last[0], first), "binlog.000009": last}
    )
    if not lost:
        require_gtids_since(session, STORED)
        return
    with pytest.raises(BinlogError, match="was not ON for a while") as refused:
        require_gtids_since(session, STORED)
    assert "another topic.prefix, or with snapshot.mode=when_needed" in refused.value.hint
