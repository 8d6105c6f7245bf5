"""Records that are not rows: their bytes, their order, and the block put into an envelope."""

from __future__ import annotations

from producer.binlog.events import Begin
from producer.capture.metadata import TransactionRecords, numbered
from producer.capture.place import Place
from producer.codec.contract import EventRows, KeyChange
from producer.database.gtid import GtidSet
from producer.database.table import TableId
from producer.envelope.java_order import hash_order
from producer.envelope.plain_json import to_json
from producer.envelope.source import SourceBlock
from producer.kafka.state import LogState
from producer.split.registry import Phase, Registry, Verdict
from producer.split.split import Range, Split
from schemas.watermark import LogPosition

TABLE = TableId("db", "t")
UUID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def test_json_is_written_as_jackson_writes_it() -> None:
    assert to_json({"a": "é\U0001f600", "b": 'q"\\n\x1f\n', "c": None}) == (
        '{"a":"é\\uD83D\\uDE00","b":"q\\"\\\\n\\u001F\\n","c":null}'.encode()
    )


def test_names_come_in_the_order_of_a_java_hash_map() -> None:
    # The code of one letter is its bucket, modulo 16: p 0, a and q 1, b 2; equal buckets keep the order of insertion.
    assert hash_order(["b", "q", "a", "p"]) == ["p", "q", "a", "b"]


class _Sent:
    """A publisher's face for what a test sends."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes | None, bytes | None]] = []

    def send(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        self.records.append((topic, key, value))


def test_the_block_is_put_where_null_stood() -> None:
    place = Place(LogState(LogPosition(1, "f.000001", 4, "", UUID)))
    place.begin(Begin(f"{UUID}:5", "f.000001", 100, 180, 7, 7_000_000, 1, 1))
    sent = _Sent()
    records = TransactionRecords(sent, "topic", place)  # type: ignore[arg-type]
    stamp = SourceBlock("p", TABLE).event(ts_us=7, server_id=1, gtid=f"{UUID}:5", file="f", pos=9)
    plain = b'{"before":null,"after":{"id":1}%b0%bc%b' % (stamp.head, stamp.middle, stamp.tail)
    change = KeyChange(b"1", b"2", plain, plain, b"", b"")
    rows = EventRows([(b"1", plain), (b"1", None), change], (), ())
    found = numbered(rows, records.numbering(TABLE, stamp)).records
    block = b'"transaction":{"id":"%b:5","total_order":%d,"data_collection_order":%d},"op":"c"'
    assert found[0] == (b"1", plain.replace(b'"transaction":null,"op":"c"', block % (UUID.encode(), 1, 1)))
    assert found[1] == (b"1", None)
    assert isinstance(found[2], KeyChange)
    assert block % (UUID.encode(), 2, 2) in found[2].delete
    assert block % (UUID.encode(), 3, 3) in found[2].create
    assert [topic for topic, _, _ in sent.records] == ["topic"]
    assert place.counts == {"db.t": 3}


def _split(number: int, lower: int, upper: int) -> Split:
    return Split(TABLE, "s", number, Range((lower,), (upper,), False), (lower,), (upper,))


def test_splits_of_a_table_that_went_away_hold_nothing() -> None:
    registry = Registry()
    table = registry.track(TABLE, Phase.WAITING)
    registry.begin(TABLE)
    registry.set_range(TABLE, (100,))
    first, second = _split(0, 0, 10), _split(1, 10, 20)
    registry.open(first)
    registry.open(second)
    registry.commit(first, GtidSet.parse(""), (1, 500))
    assert registry.judge(table, (15,), f"{UUID}:1", (1, 300))[0] is Verdict.HOLD
    registry.abandon_split(second)
    assert registry.judge(table, (15,), f"{UUID}:1", (1, 300))[0] is Verdict.DROP
    assert registry.judge(table, (5,), f"{UUID}:1", (1, 300))[0] is Verdict.BACKFILL
    registry.abandon(TABLE)
    assert [split.split.number for split in registry.forget(TABLE)] == [0]
    assert TABLE not in registry.tables
    assert not registry.waiting_for_end


def test_a_table_that_is_to_be_read_anew_is_never_finished() -> None:
    registry = Registry()
    table = registry.track(TABLE, Phase.WAITING)
    registry.begin(TABLE)
    registry.set_range(TABLE, (100,))
    registry.mark_all_read(TABLE)
    assert registry.finished_tables() == [TABLE]
    table.closed = True
    assert registry.finished_tables() == []


def test_a_table_that_went_away_while_its_range_was_sought_holds_nothing() -> None:
    registry = Registry()
    table = registry.track(TABLE, Phase.WAITING)
    registry.begin(TABLE)
    assert registry.judge(table, (5,), f"{UUID}:1", (1, 300))[0] is Verdict.HOLD
    registry.abandon(TABLE)
    assert registry.judge(table, (5,), f"{UUID}:1", (1, 300))[0] is Verdict.DROP
