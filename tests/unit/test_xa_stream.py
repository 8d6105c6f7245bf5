"""Two-phase XA: the rows of a prepared transaction belong to its XA COMMIT, or to nothing."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.producer.app.startup import prepared_transactions
from tailrace.producer.errors import BinlogError
from tailrace.producer.kafka.state_store import State
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    Event,
    PositionAdvanced,
    PreparedTransactionEnded,
    QueryEvent,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
    anonymous_name,
)
from tailrace.producer.model.ddl import DdlEffect
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog import xa_history
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.mysql.binlog.transaction_parser import Names
from tailrace.producer.mysql.binlog.xa_history import BinlogHistory
from tailrace.producer.mysql.binlog.xa_stream import (
    TransactionNotFoundError,
    TransactionPurgedError,
    XaStream,
    at_commit,
)
from tests.support.binlog_bytes import ROW, SOURCE, XA_PREPARE, LogBytes, orders

OTHER_ROW = b"\0\2\0\0\0\2\0\0\0"


def prepare(log: LogBytes, name: str, *images: bytes, table: str = "orders") -> LogBytes:
    """Append the first phase of a transaction."""
    xid = f"X'{name.encode().hex()}',X'',1"
    log.gtid().query(f"XA START {xid}").table_map(table)
    for image in images:
        log.rows(image)
    return log.query(f"XA END {xid}").add(XA_PREPARE, b"\0" + b"\0" * 13)


def finish(log: LogBytes, name: str, word: str = "COMMIT") -> LogBytes:
    """Append the second phase."""
    return log.gtid().query(f"XA {word} X'{name.encode().hex()}',X'',1")


class BytesStream:
    """The binlog stream of bytes made by hand, which arrive in pieces of one size."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._parser = BinlogParser(orders)
        self._pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
        self.done = False

    @property
    def has_xa(self) -> bool:
        """See ``BinlogStream``."""
        return self._parser.has_xa

    @property
    def caught_up(self) -> bool:
        """See ``BinlogStream``."""
        return self.done

    @property
    def received_at(self) -> float:
        """See ``BinlogStream``."""
        return 1.0

    def poll(self, timeout_s: float) -> list[Event]:  # noqa: ARG002 - nothing to wait for
        """Parse the next piece."""
        self.done = not self._pieces
        return self._parser.feed(self._pieces.pop(0)) if self._pieces else []

    def wake(self) -> None:
        """Do nothing."""

    def ddl_effects(self, event: QueryEvent) -> list[DdlEffect]:  # noqa: ARG002 - none
        """Return nothing."""
        return []

    def close(self) -> None:
        """Do nothing."""


class BytesHistory:
    """Reads transactions again from bytes made by hand; counts how often."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data
        self.reads: list[str] = []

    def read(
        self,
        gtid: str,
        ended: PreparedTransactionEnded | None,
        file: str = "",  # noqa: ARG002 - there is one
    ) -> Iterator[list[Event]]:
        """Yield the rows of one transaction, one at a time."""
        self.reads.append(gtid)
        current, found = "", False
        for event in BinlogParser(orders).feed(self._data):
            if isinstance(event, TransactionBegin):
                current = event.gtid
                found = found or current == gtid
            elif isinstance(event, RowsEvent) and current == gtid:
                yield []
                yield [event if ended is None else at_commit(event, ended)]
        if not found:
            raise TransactionPurgedError("no file has it")

    def find(self, ended: PreparedTransactionEnded) -> Generator[list[Event], None, TransactionPrepared | None]:
        """Find the last XA PREPARE."""
        yield []
        found = None
        for event in BinlogParser(orders).feed(self._data):
            if isinstance(event, TransactionPrepared) and event.xid == ended.xid:
                found = event
        return found


def drain(stream: XaStream, source: BytesStream) -> list[Event]:
    """Return all events but positions."""
    events: list[Event] = []
    while not source.done:
        events += [e for e in stream.poll(0) if not isinstance(e, PositionAdvanced)]
    return events


def read(
    log: LogBytes | bytes,
    history: BytesHistory | None = None,
    prepared: Iterable[TransactionPrepared] = (),
    *,
    piece: int = 1 << 30,
    max_kept_bytes: int = 1 << 20,
) -> list[Event]:
    """Return the events of a log behind an XA stream."""
    source = BytesStream(log if isinstance(log, bytes) else log.data, piece)
    stream = XaStream(source, history or BytesHistory(), prepared, max_kept_bytes=max_kept_bytes)
    return drain(stream, source)


def summary(events: list[Event]) -> list[str]:
    """Return what happens in the transactions, by the numbers of their GTIDs."""
    lines: list[str] = []
    for event in events:
        if isinstance(event, TransactionBegin):
            lines.append(f"{event.gtid.rpartition(':')[2]}:")
        elif isinstance(event, RowsEvent):
            lines[-1] += f" row {event.data[event.start + 1]}"
        elif isinstance(event, TransactionCommit):
            lines[-1] += " end"
    return lines


@pytest.mark.parametrize("piece", [1 << 30, 50, 1])
@pytest.mark.parametrize("kept", [1 << 20, 0])
def test_rows_of_a_prepared_transaction_are_read_at_its_commit(piece: int, kept: int) -> None:
    """Another transaction is between both phases; the rows are kept in memory, or read again."""
    log = prepare(LogBytes(), "a", ROW, OTHER_ROW).transaction()
    commit_at = finish(log, "a").transaction().data
    history = BytesHistory(commit_at)

    events = read(log, history, piece=piece, max_kept_bytes=kept)

    assert summary(events) == ["1: end", "2: row 1 end", "3: row 1 row 2 end", "4: row 1 end"]
    assert history.reads == ([] if kept else [f"{SOURCE}:1"])
    begins = {e.gtid: e for e in events if isinstance(e, TransactionBegin)}
    rows = [e for e in events if isinstance(e, RowsEvent)][1:3]
    [commit] = [e for e in events if isinstance(e, TransactionCommit) and e.gtid == f"{SOURCE}:3"]
    assert {(r.pos >= begins[f"{SOURCE}:3"].pos, r.end) for r in rows} == {(True, commit.end)}


def test_rows_of_a_rolled_back_transaction_are_dropped() -> None:
    """Nothing of it was ever valid."""
    log = finish(prepare(LogBytes(), "a", ROW), "a", "ROLLBACK").transaction()

    assert summary(read(log)) == ["1: end", "2: end", "3: row 1 end"]


@pytest.mark.parametrize("kept", [1 << 20, 0])
def test_one_phase_is_an_ordinary_transaction(kept: int) -> None:
    """Its rows keep their own positions, also if they are too large to be kept until its end."""
    log = LogBytes().gtid().query("XA START X'61',X'',1").table_map().rows(ROW).query("XA END X'61',X'',1")
    log.add(XA_PREPARE, b"\1" + b"\0" * 13).transaction()

    events = read(log, BytesHistory(log.data), max_kept_bytes=kept)

    assert summary(events) == ["1: row 1 end", "2: row 1 end"]
    plain = [e for e in BinlogParser(orders).feed(log.data) if isinstance(e, RowsEvent)]
    assert [e.pos for e in events if isinstance(e, RowsEvent)] == [e.pos for e in plain]


def test_other_tables_need_no_second_reading() -> None:
    """Neither at the commit, nor if the transaction was prepared before a restart and is purged."""
    first = prepare(LogBytes(), "a", ROW, table="other")
    whole = first.data
    history = BytesHistory()
    assert summary(read(finish(prepare(LogBytes(), "a", ROW, table="other"), "a"), history)) == ["1: end", "2: end"]
    assert history.reads == []

    prepared = [e for e in read(whole) if isinstance(e, TransactionPrepared)]
    after = LogBytes()
    after.number = 1
    assert summary(read(finish(after, "a"), BytesHistory(), prepared)) == ["2: end"]


def test_transaction_prepared_before_a_restart_is_reread() -> None:
    """The state has it: its rows come from the binlog; if that is purged, the error is raised."""
    before = prepare(LogBytes(), "a", ROW).data
    prepared = [e for e in read(before) if isinstance(e, TransactionPrepared)]
    assert [(p.xid, p.gtid, p.captured) for p in prepared] == [("X'61',X'',1", f"{SOURCE}:1", True)]
    after = LogBytes()
    after.number = 1
    finish(after, "a").transaction()

    assert summary(read(after, BytesHistory(before), prepared, piece=40)) == ["2: row 1 end", "3: row 1 end"]
    [refused] = [e for e in read(after, BytesHistory(), prepared) if isinstance(e, ChangeRefused)]
    assert refused.tables == (TableId("shop", "orders"),)
    [unknown] = [
        e for e in read(after, BytesHistory(), [prepared[0]._replace(tables=())]) if isinstance(e, ChangeRefused)
    ]
    assert unknown.tables == ()
    assert "not known" in unknown.error.message
    assert "XA PREPARE was purged" in refused.error.message
    assert refused.error.hint.startswith(
        "keep the binlog for longer than XA transactions stay prepared (binlog_expire_"
    )
    assert refused.error.context["xid"] == "X'61',X'',1"
    assert refused.error.context["file"] == "binlog.000001"


def test_table_captured_since_a_restart_gets_its_rows() -> None:
    """The filters of the time of XA PREPARE do not decide."""
    before = prepare(LogBytes(), "a", ROW).data
    [prepared] = [e for e in read(before) if isinstance(e, TransactionPrepared)]
    after = LogBytes()
    after.number = 1

    events = read(finish(after, "a"), BytesHistory(before), [prepared._replace(captured=False)])

    assert summary(events) == ["2: row 1 end"]


def test_transaction_prepared_before_the_capture_is_found() -> None:
    """XA COMMIT of a transaction that neither the stream nor the state has seen."""
    before = prepare(LogBytes(), "a", ROW).data
    after = LogBytes()
    after.number = 1
    finish(after, "a").transaction()

    assert summary(read(after, BytesHistory(before))) == ["2: row 1 end", "3: row 1 end"]


def test_memory_is_bounded_by_rereading_the_oldest() -> None:
    """Many prepared transactions: the limit holds for all of them together."""
    log = LogBytes()
    names = [f"t{n}" for n in range(20)]
    for name in names:
        prepare(log, name, ROW, ROW)
    for name in names:
        finish(log, name)
    history = BytesHistory(log.data)

    events = read(log, history, max_kept_bytes=5_000)

    assert [line.count("row") for line in summary(events)] == [0] * 20 + [2] * 20
    assert 10 < len(history.reads) < 20
    assert history.reads == [f"{SOURCE}:{n + 1}" for n in range(len(history.reads))]


def test_an_id_may_name_another_transaction_later() -> None:
    """After its end, an id names another transaction."""
    log = LogBytes()
    finish(prepare(log, "a", ROW), "a", "ROLLBACK")
    finish(prepare(log, "a", OTHER_ROW), "a")

    assert summary(read(log)) == ["1: end", "2: end", "3: end", "4: row 2 end"]


def test_lost_transaction_of_another_configuration_may_concern_any_table() -> None:
    """It had no captured table then: a table that is captured since may be one of its tables."""
    xid = "X'61',X'',1"
    stored = TransactionPrepared(xid, f"{SOURCE}:1", "binlog.000001", 4, captured=False, end=100, settings="other")
    state = State(prepared={xid: stored})
    for settings, refused in (("other", 0), ("own", 1)):
        events = read(finish(LogBytes(), "a"), BytesHistory(), prepared_transactions(state, settings))
        assert sum(isinstance(event, ChangeRefused) for event in events) == refused


def test_no_prepare_is_taken_from_behind_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """That file may have the end of the transaction, and another one of the same xid."""
    former: Any = SimpleNamespace(file="f.000001", pos=4, _replace=lambda **_: former)
    searched = []

    class History(BinlogHistory):
        def _search(self, file: str, ended: PreparedTransactionEnded, opened: dict[str, Any]) -> Iterator[list[Event]]:
            searched.append(file)
            if file == "f.000002":
                raise BinlogError("the file is damaged")
            if file == former.file:
                opened[ended.xid] = former
            yield []

    monkeypatch.setattr(xa_history, "connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(xa_history, "query", lambda *_: [(f"f.00000{number}", 100) for number in (1, 2, 3)])
    monkeypatch.setattr(xa_history, "has_gtids", lambda _: True)
    monkeypatch.setattr(xa_history, "purged_gtids", lambda _: "")
    settings: Any = None
    history = History(settings, server_id=1, captures=lambda _: True, max_search_bytes=10_000)

    with pytest.raises(TransactionNotFoundError, match="cannot be read to its end"):
        list(history.find(PreparedTransactionEnded("x", True, "f.000003", 50, 90, 0, 1)))
    assert searched == ["f.000003", "f.000002"]


@pytest.mark.parametrize("grows", [True, False])
def test_the_end_of_a_transaction_may_take_long_to_arrive(monkeypatch: pytest.MonkeyPatch, grows: bool) -> None:
    """Only a file that ends at the position of the transaction is another file."""
    clock = [0.0]
    name = anonymous_name("f.000001", 4)
    end = TransactionCommit(name, "f.000001", 9, 1)

    class Slow:
        names = Names.POSITIONS
        file, pos = "f.000001", 4

        def __enter__(self) -> Slow:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def poll(self, _timeout_s: float) -> list[TransactionCommit]:
            clock[0] += 40
            self.pos += grows
            return [end] if self.pos == end.end else []

    class History(BinlogHistory):
        def _from(self, begin: tuple[str, int]) -> Any:  # noqa: ARG002 - there is one
            return Slow()

    monkeypatch.setattr(xa_history, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    settings: Any = None
    found = History(settings, server_id=1, captures=lambda _: True).end_of(name)

    assert found == (end if grows else TransactionCommit("", "f.000001", 4, 0))
