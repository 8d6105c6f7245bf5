"""How long deletes are remembered after a topic got more partitions."""

from __future__ import annotations

from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.normalize.stored_records import MovedKeys


def at(pos: int) -> Sequence:
    """Return a sequence."""
    return Sequence(1, 7, pos, 0, 0)


def test_deletes_are_remembered_until_all_partitions_have_passed_them() -> None:
    known = MovedKeys(1, {}, {"4": at(300)})
    known = known.advance({1: at(300)}, [0, 1])
    assert known.lowest == at(300)
    assert known.deletes == {"4": at(300)}, "nothing is known of partition 0"

    known = known.advance({0: at(200)}, [0, 1])
    assert (known.passed, known.deletes) == ({0: at(200), 1: at(300)}, {"4": at(300)})
    known = known.advance({0: at(350), 1: at(400)}, [0, 1])
    assert known.deletes == {}


def test_partition_without_records_has_passed_what_the_batch_before_had() -> None:
    known = MovedKeys(1).advance({0: at(100), 1: at(300)}, [0, 1]).advance({1: at(500)}, [0, 1])

    assert known.passed == {0: at(300), 1: at(500)}
    assert MovedKeys.from_json(known.to_json()) == known


def test_topic_has_grown_when_it_has_more_partitions_than_in_its_first_batch() -> None:
    assert not MovedKeys().grown(4)
    assert not MovedKeys(4).grown(4)
    assert MovedKeys(4).grown(5)
