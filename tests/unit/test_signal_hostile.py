"""Signals that are malformed or written to do harm: each is logged and skipped, and its channel goes on behind it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tailrace.producer.config.filters import InvalidExpressionError, TableFilter
from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.kafka.moved_position import MOVED_KEY, ReplayedPart
from tailrace.producer.kafka.state_store import SIGNALS_KEY
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.condition import condition_problem
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.notifications.notification import NotificationService
from tailrace.producer.signals.channels import FileChannel
from tailrace.producer.signals.moves import Moves
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.signals.queue import ChannelOffsets, IncrementalSnapshotQueue
from tailrace.producer.signals.signal import InvalidSignalError, Signal, from_json, from_row, read_signal
from tailrace.producer.signals.table_expression import TableExpression, TableNames
from tailrace.producer.streaming.replay import Replay
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.runtime.errors import ConfigError
from tests.support.stream import START, FakeProducer, stream_transaction

TABLE = TableId("db", "orders_of_the_last_years_and_more")


def _located(_text: str, epoch: int) -> MySqlOffset:
    return START._replace(epoch=epoch)


def processor(
    *modes: TableMode,
    locate: Callable[[str, int], MySqlOffset] = _located,
    tried: dict[str, int] | None = None,
    replay: ReplayedPart | None = None,
) -> tuple[SignalProcessor, FakeProducer]:
    """Return a processor with one captured table, and what it writes."""
    producer, registry = FakeProducer(), SplitRegistry()
    first, *later = modes or [TableMode.STREAMING]
    tracked = registry.track(TABLE, first)
    for mode in later:
        tracked.move_to(mode)
    transaction = stream_transaction(producer, registry)
    notifications = NotificationService(transaction, topic=None, to_log=False)
    found = SignalProcessor(
        IncrementalSnapshotQueue(),
        registry,
        transaction,
        notifications,
        TableFilter(),
        condition_problem=condition_problem,
        moves=Moves(locate, {} if tried is None else tried, Replay(replay)),
    )
    return found, producer


def nested(depth: int) -> Any:
    """Return a value of so many nested lists."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def snapshot(**data: Any) -> bytes:
    """Return an execute-snapshot signal."""
    return orjson.dumps({"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["db.*"], **data}})


HOSTILE: dict[str, bytes] = {
    "conditions true": snapshot(**{"additional-conditions": True}),
    "conditions number": snapshot(**{"additional-conditions": 5}),
    "conditions object": snapshot(**{"additional-conditions": {"data-collection": "db.a", "filter": "1"}}),
    "deep data": snapshot(more=nested(200)),
    "deep text": orjson.dumps(
        {
            "id": "1",
            "type": "execute-snapshot",
            "data": '{"data-collections":["db.*"],"x":' + "[" * 900 + "]" * 900 + "}",
        }
    ),
    "deeper than JSON": b'{"id":"1","type":"log","data":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "deep groups": snapshot(**{"data-collections": ["(" * 3000 + "a" + ")" * 3000]}),
    "exponential": snapshot(**{"data-collections": ["(.*)*!"]}),
    "exponential alternatives": snapshot(**{"data-collections": ["(a|a|b|[a-z]|.)*!"]}),
    "exponential options": snapshot(**{"data-collections": ["(.?.?){30}" * 30 + "!"]}),
    "options": snapshot(**{"data-collections": [".?" * 60 + "!"]}),
    "wildcards": snapshot(**{"data-collections": [".*" * 12 + "!"]}),
    "comments": snapshot(**{"data-collections": ["(?#[)(.*)*!(?#])"]}),
    "counted within counted": snapshot(**{"data-collections": ["((((a{0}){1000}){1000}){1000}){1000}!"]}),
    "count of ten digits": snapshot(**{"data-collections": ["(a{0}){4000000000}!"]}),
    "counted": snapshot(**{"data-collections": ["(a{0}){900000000}"]}),
    "long": snapshot(**{"data-collections": ["a" * 5000]}),
    "long id": orjson.dumps({"id": "x" * 300_000, "type": "execute-snapshot", "data": {"data-collections": ["db.*"]}}),
    "other tables": snapshot(
        **{
            "additional-conditions": [
                {"data-collection": "db.*", "filter": "1=0) UNION SELECT user FROM mysql.user -- "}
            ]
        }
    ),
    "list": b"[1]",
    "surrogate": b'{"id":"\\ud800","type":"log","data":{"message":"x"}}',
    "no UTF-8": b'{"id":"\xff","type":"log"}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_signal_is_skipped_and_its_offset_stored(text: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    found, producer = processor()
    started = time.monotonic()

    found.process([read_signal(from_json, text)], ChannelOffsets(kafka=7))

    assert time.monotonic() - started < 20
    assert found.queue.requests == ()
    stored = [orjson.loads(value or b"") for _, key, value in producer.open if key == SIGNALS_KEY]
    assert stored[-1]["kafka"] == 7
    assert "invalid signal ignored" in capsys.readouterr().out


def test_row_that_no_rule_foresaw_is_an_invalid_signal() -> None:
    assert isinstance(read_signal(from_row, ["1", "log"]), InvalidSignalError)
    assert isinstance(read_signal(from_row, 7), InvalidSignalError)  # type: ignore[arg-type]


def test_many_expressions_for_many_tables_are_bounded() -> None:
    """Names of tables cost nothing; wildcards are limited by the number of captured tables."""
    tables = TableNames(TableId("db", f"t{n}") for n in range(10_000))
    names = [TableExpression.parse(f"db.T{n}") for n in range(10_000)]
    tables.require_bounded(names)
    assert [table for name in names for table in name.among(tables)] == [TableId("db", f"t{n}") for n in range(10_000)]
    wildcard = TableExpression.parse(r"db\..*7")
    tables.require_bounded([wildcard])
    assert len(wildcard.among(tables)) == 1000
    with pytest.raises(InvalidExpressionError, match="too long to match 10000 tables"):
        tables.require_bounded([TableExpression.parse(".*_.*_.*")])


_ATOMS = st.sampled_from(
    ["a", ".", "[a.]", "a{0}", r"\w", r"\1", "(?#[)", "(?#])", "(?i)", "(?(1)a|a)", "()", "^", "#"]
)
_REPEATS = st.sampled_from(["", "*", "+", "?", "*?", "*+", "{2}", "{0,40}", "{1000}", "{,9}", "{4000000000}", "{9,}"])
_GROUPS = st.sampled_from(["(", "(?:", "(?=", "(?!", "(?>", "(?<=", "(?i:", "(?-i:", "(?P<a>", "(?P=a"])
_EXPRESSIONS = st.recursive(
    st.builds("".join, st.tuples(_ATOMS, _REPEATS)),
    lambda parts: st.one_of(
        st.lists(parts, min_size=2, max_size=4).map("".join),
        st.lists(parts, min_size=2, max_size=3).map("|".join),
        st.tuples(_GROUPS, parts, st.just(")"), _REPEATS).map("".join),
    ),
    max_leaves=8,
)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(max_examples=1_500)
@given(_EXPRESSIONS, st.sampled_from(["!", "", ".*!"]))
def test_what_is_accepted_matches_within_its_bound(text: str, end: str) -> None:
    """Of the time of the engine: names that nearly match, and a bound that the engine does not keep fails here."""
    try:
        expression = TableExpression.parse(text + end)
    except InvalidExpressionError:
        return

    def too_long(*_: object) -> None:
        raise AssertionError(f"{text + end!r} has the bound {expression.cost}")

    former = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 2 + expression.cost * 2e-6)  # it takes 2e-8 s for a step on an idle machine
    try:
        expression.fullmatch("a" * 64 + "." + "a" * 64)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize(
    "expression", [r"shop\.(orders|items_\d+)", ".*", "(?i)shop.*", r"shop\.[a-f].*_v\d{1,3}", r"(?!a)b\.c", "a{x}.b"]
)
def test_ordinary_expressions_are_accepted(expression: str) -> None:
    assert TableExpression.parse(expression).cost > 0


def test_symbolic_link_is_not_read(tmp_path: Path) -> None:
    secret, link = tmp_path / "secret", tmp_path / "signals"
    secret.write_text("password\n")
    link.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        FileChannel(link, last_digest="").poll(lambda *_: None)
    assert secret.exists()


@pytest.mark.parametrize("name", ["directory", "file/signals", "missing/signals"])
def test_signal_file_that_cannot_be_read_is_not_absent(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"is no file|Not a directory|missing does not exist: create") as caught:
        FileChannel(tmp_path / name, last_digest="").poll(lambda *_: None)
    assert str(tmp_path / name.removesuffix("/signals")) in str(caught.value)

    FileChannel(tmp_path / "signals", last_digest="").poll(lambda *_: pytest.fail("there is none"))


def test_valid_signal_follows_an_invalid_one() -> None:
    found, _ = processor()
    found.process(
        [read_signal(from_json, HOSTILE["conditions true"]), Signal("2", "log", {"message": "x"})], ChannelOffsets()
    )
    found.process([read_signal(from_json, snapshot())], ChannelOffsets(kafka=8))
    assert found.queue.tables == (TABLE,)


@pytest.mark.parametrize(
    ("modes", "moves"),
    [
        ([TableMode.STREAMING], True),
        ([TableMode.ERROR], True),
        ([TableMode.WAITING], False),
        ([TableMode.WAITING, TableMode.PLANNING, TableMode.SNAPSHOT], False),
        ([TableMode.STREAMING, TableMode.INCREMENTAL], False),
    ],
)
def test_the_position_is_not_set_while_a_table_is_read(modes: list[TableMode], *, moves: bool) -> None:
    """Readers would be told that its rows are gone, and with initial_only nothing would read it again."""
    found, producer = processor(*modes)
    signal = from_json(b'{"id":"1","type":"set-binlog-position","data":{"gtid_set":"u:1-5"}}')
    with capture_logs() as logs:
        found.process([signal], ChannelOffsets(kafka=7))
    assert (found.moved, any(key == MOVED_KEY for _, key, _ in producer.open)) == (moves, moves)
    assert moves or f"tables are being read, whose rows would be gone for readers: {TABLE}" in logs[-1]["reason"]


def test_a_position_that_the_source_never_finds_is_given_up() -> None:
    """Each session would end with the same signal."""

    def never(text: str, epoch: int) -> MySqlOffset:
        raise SourceUnavailableError("the server did not respond", text=text, epoch=epoch)

    tried: dict[str, int] = {}
    signal = from_json(b'{"id":"1","type":"set-binlog-position","data":{"gtid_set":"u:1-5"}}')
    for _ in range(2):
        found, _ = processor(locate=never, tried=tried)
        with pytest.raises(SourceUnavailableError):
            found.process([signal], ChannelOffsets(kafka=7))
    found, producer = processor(locate=never, tried=tried)
    with capture_logs() as logs:
        found.process([signal], ChannelOffsets(kafka=7))
    assert (found.moved, found.offsets.kafka) == (False, 7)
    assert "not told in 3 sessions whether its binlog has the position u:1-5" in logs[-1]["reason"]
    assert not any(key == MOVED_KEY for _, key, _ in producer.open)
    assert tried == {}, "sent again, it is tried again"


def test_the_position_is_not_set_during_a_replay() -> None:
    """What was altered in the binlog that is left out then would not be known."""
    found, _ = processor(replay=ReplayedPart(START._replace(pos=900)))
    signal = from_json(b'{"id":"1","type":"set-binlog-position","data":{"gtid_set":"u:1-5"}}')
    with capture_logs() as logs:
        found.process([signal], ChannelOffsets(kafka=7))
    assert not found.moved
    assert "send it when it has passed" in logs[-1]["reason"]
    assert found.responses[-1].reason == logs[-1]["reason"], "/status has it"


def test_status_has_why_a_position_is_not_set() -> None:
    def purged(_text: str, _epoch: int) -> MySqlOffset:
        raise ConfigError(["the source has purged binlog files that were not read yet"])

    found, _ = processor(locate=purged)
    signal = from_json(b'{"id":"1","type":"set-binlog-position","data":{"gtid_set":"u:1-5"}}')
    found.process([signal], ChannelOffsets(kafka=7))
    found.process([signal], ChannelOffsets(kafka=8), in_log=True)
    assert not found.moved
    assert [response.reason for response in found.responses] == [
        "the source has purged binlog files that were not read yet",
        "the stream would read it again and again: send it to another channel",
    ]
