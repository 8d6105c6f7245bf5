"""Which tables count as captured when their topics do not exist; no servers."""

from __future__ import annotations

from typing import get_args

import pytest

from tailrace.producer.app.missing_topics import deleted_tables
from tailrace.producer.config.sections.kafka import MissingTopicHandling
from tailrace.producer.kafka.state_store import State, StoredOffset, TableState
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.runtime.errors import KafkaRequestError
from tests.support.stream import START

STREAMED, FAULTY, NEW = (TableId("db", name) for name in ("streamed", "faulty", "new"))


def _state(**modes: TableMode) -> State:
    return State(StoredOffset(START), tables={f"db.{name}": TableState(mode) for name, mode in modes.items()})


@pytest.mark.parametrize("handling", get_args(MissingTopicHandling))
def test_table_in_error_never_had_a_topic(handling: MissingTopicHandling) -> None:
    """A table that could not be captured, and one that is not known, are no reason to stop, to report or to read."""
    state = _state(faulty=TableMode.ERROR)

    assert deleted_tables([FAULTY, NEW], state, str, handling) == []


def test_topic_of_a_streamed_table_is_reported() -> None:
    state = _state(streamed=TableMode.STREAMING, faulty=TableMode.ERROR)

    assert deleted_tables([STREAMED, FAULTY], state, str, "warn") == [STREAMED]
    with pytest.raises(KafkaRequestError, match="do not exist any more") as raised:
        deleted_tables([STREAMED, FAULTY], state, str, "fail")
    assert raised.value.context["topics"] == "db.streamed"
    assert raised.value.hint == "restore the topics, or set tailrace.missing.topic.handling.mode to snapshot or warn"
