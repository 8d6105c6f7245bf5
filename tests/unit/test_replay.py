"""A table that is altered in the binlog that is read again is read as a whole, once that is passed; no servers."""

from __future__ import annotations

import orjson

from tailrace.producer.app.startup import begin_replay
from tailrace.producer.kafka.moved_position import REPLAY_KEY, ReplayedPart
from tailrace.producer.kafka.state_store import State, StoredOffset, decode
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.streaming.former_tables import former_key
from tailrace.producer.streaming.replay import Replay
from tailrace.schemas.names import state_topic, watermarks_topic
from tests.support.stream import SERVER, START, FakeProducer, stream_transaction
from tests.unit.test_new_tables import Stream

T, U = TableId("db", "t"), TableId("db", "u")
UNTIL = START._replace(gtids=GtidSet.parse(f"{SERVER}:1-5"), pos=900)


class Replayed(Stream):
    """A stream that reads up to UNTIL again."""

    def __init__(self) -> None:
        super().__init__()
        self.replay = self.lifecycle._context.replay
        self.replay.part = ReplayedPart(UNTIL)
        for table in (T, U):
            self.catalog[table] = ("id",)
            self.insert(table, "id")

    def go_to(self, position: MySqlOffset) -> None:
        """Let the stream reach a position."""
        offset = self.transaction.offset
        offset.transaction, offset._position = None, position
        self.lifecycle.end_replay()

    def stored(self) -> ReplayedPart | None:
        """Return what a restart would go on with."""
        values = [value for topic, key, value in self.producer.open if (topic, key) == (state_topic("p"), REPLAY_KEY)]
        return decode({REPLAY_KEY: values[-1]}, MySqlOffset.from_json).replay if values and values[-1] else None

    def created(self) -> list[str]:
        """Return the tables whose rows are gone for readers."""
        values = [value for topic, _, value in self.producer.open if topic == watermarks_topic("p")]
        records = [orjson.loads(value or b"") for value in values]
        return [record["table"] for record in records if record["kind"] == "CREATED"]


def test_a_table_is_read_when_the_part_is_passed() -> None:
    stream = Replayed()
    stream.producer.open.clear()
    stream.listener.reports.clear()
    stream.ddl("ALTER TABLE t RENAME COLUMN v TO w")
    stream.ddl("ALTER TABLE t ADD x INT DEFAULT 3")
    stream.ddl("ALTER TABLE u COMMENT 'x'")
    assert stream.stored() == ReplayedPart(UNTIL, ("db.t",))
    stream.go_to(UNTIL._replace(gtids=GtidSet.parse(f"{SERVER}:1-4")))
    assert (stream.created(), stream.listener.reports) == ([], [])

    stream.go_to(UNTIL)
    assert stream.replay.part is None
    assert (stream.created(), stream.listener.reports) == (["t"], [("requested", T, True)])
    keys = {key: value for _, key, value in stream.producer.open}
    assert (keys[REPLAY_KEY], keys[former_key(T)]) == (None, None)
    stream.ddl("ALTER TABLE t DROP x")
    stream.go_to(UNTIL._replace(pos=990))
    assert stream.created() == ["t"]


def test_a_part_that_a_restart_goes_on_with() -> None:
    part = ReplayedPart(UNTIL, ("db.t", "db.u"))
    assert decode({REPLAY_KEY: part.to_json()}, MySqlOffset.from_json).replay == part


def test_only_a_way_back_is_a_replay() -> None:
    def begun(position: MySqlOffset | None, state: State) -> tuple[ReplayedPart | None, list[bytes | None]]:
        producer = FakeProducer()
        begin_replay(stream_transaction(producer), state, position)
        return state.replay, [value for _, key, value in producer.open if key == REPLAY_KEY]

    back, ahead = (UNTIL._replace(epoch=2, gtids=GtidSet.parse(f"{SERVER}:1-{n}")) for n in (3, 7))
    assert begun(back, State(StoredOffset(UNTIL))) == (ReplayedPart(UNTIL), [ReplayedPart(UNTIL).to_json()])
    assert begun(ahead, State(StoredOffset(UNTIL))) == (None, [])
    assert begun(ahead, State(StoredOffset(UNTIL), replay=ReplayedPart(UNTIL, ("db.t",)))) == (None, [None])
    assert begun(None, State(StoredOffset(UNTIL), replay=ReplayedPart(UNTIL))) == (None, [None])
    assert Replay().take_passed(stream_transaction(FakeProducer())) == ()
