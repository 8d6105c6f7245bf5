"""From where a table whose target lacks records is read again."""

from __future__ import annotations

import pytest

from tailrace.spark_consumer.normalize.table_state import TableState
from tailrace.spark_consumer.sink.ledger import TargetBehindError, require_reached
from tailrace.spark_consumer.source.ranges import EARLIEST


def back_to(state: TableState, topic_id: str, ledger: dict[int, int]) -> dict[str, int]:
    """Return the offsets to which a table goes back, before a batch from 90, 70 and 5; none if it does not."""
    try:
        begins = {0: 90, 1: 70, 2: 5}
        require_reached("t", begins, ledger, ledger, whole_from=state.begins_in(topic_id))
    except TargetBehindError as error:
        return dict(error.starts)
    return {}


def test_target_goes_back_to_where_its_table_begins() -> None:
    reloaded = TableState(step=3, topic_id="a", begins={0: 40, 1: 70})

    # Nothing was in partition 1 since, and partition 2 was added later.
    assert back_to(reloaded, "a", {}) == {"0": 40, "2": EARLIEST}
    assert back_to(reloaded, "", {}) == {"0": 40, "2": EARLIEST}
    assert back_to(reloaded, "a", {0: 90, 2: 5}) == {}
    # What a target has tells more: it was restored.
    assert back_to(reloaded, "a", {0: 10, 2: 5}) == {"0": 10}
    assert back_to(reloaded, "b", {}) == dict.fromkeys("012", EARLIEST)


@pytest.mark.parametrize("begins", [{}, {0: 40, 1: 0}])
def test_state_keeps_where_the_table_begins(begins: dict[int, int]) -> None:
    state = TableState(step=3, begins=begins)
    body = state.to_json()

    assert TableState.from_json(3, body) == state
    del body["begins"]  # of an earlier release
    assert TableState.from_json(3, body).begins is None
