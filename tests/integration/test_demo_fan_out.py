"""``./run demo --sinks``: the configuration of its consumer, and the rows of its tables."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from itertools import product
from typing import get_args
from unittest.mock import create_autospec

import pytest
from rich.console import Console

from tailrace.producer.ops.status import Phase
from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer import config
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.routing import SinkRouter
from tailrace.spark_consumer.sink.shape import Shape
from tests.demo import fan_out
from tests.demo.fan_out import FanOut, check_options
from tests.demo.many_tables import KINDS, Changes, kind_of, names
from tests.demo.progress import Progress
from tests.demo.targets import TARGETS

pytestmark = pytest.mark.spark  # the settings of the consumer name its jars


def test_every_table_has_one_sink_and_every_sink_has_tables() -> None:
    with FanOut(list(TARGETS), 40) as stack:
        given = {name: str(value) for name, value in stack.consumer_settings().items()}
        router = SinkRouter(load_sinks(config.parse(given)), "demo")
        topics = [f"demo.shop.{table}" for table in stack.tables]

        assert router.problems(topics) == []
        found = Counter(router.name_of(topic) for topic in topics)
        assert set(found) == {"delta", "iceberg", "postgres", "mysql", "parquet", "kafka", "upsert_kafka"}
        assert min(found.values()) >= 5
        kinds = {(router.name_of(topic), kind_of(topic)) for topic in topics}
        assert len(kinds) >= 20  # not one kind of table for each sink
        shapes = Counter((stack.target_of(table).name, stack.shape_of(table)) for table in stack.tables)
        shaped = ("delta", "iceberg", "postgres", "mysql")
        assert {each for each in shapes if each[0] in shaped} == set(product(shaped, get_args(Shape)))
        images = {topic: router.images(topic) for topic in topics}
        histories = {"history": Images.CHANGELOG, "scd2": Images.CHANGELOG, "soft-delete": Images.UPSERT_WITH_BEFORE}
        for table, topic in zip(stack.tables, topics, strict=True):
            shape = stack.shape_of(table)
            assert shape == "scd1" or images[topic] is histories[shape], table


def test_unknown_sinks_are_refused() -> None:
    with pytest.raises(TailraceError, match="--sinks: hudi"):
        check_options(argparse.Namespace(sinks="delta, hudi"))
    with pytest.raises(TailraceError, match="no sink is given"):
        check_options(argparse.Namespace(sinks=" ,"))
    assert check_options(argparse.Namespace(sinks="delta, kafka,delta")) == ["delta", "kafka"]


@pytest.mark.parametrize("table", names(4))
def test_key_of_a_row_is_that_of_its_number(table: str) -> None:
    kind = KINDS[kind_of(table)]
    keys = [kind.key_of(number) for number in range(200)]

    assert len(set(keys)) == len(keys)
    assert all(kind.make(random.Random(5), number)[: len(kind.key)] == key for number, key in enumerate(keys))


def test_workload_goes_on_until_a_micro_batch_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = _Watched(0, 0, 1, 2)
    monkeypatch.setattr(fan_out, "Observer", lambda _: watched)
    monkeypatch.setattr(fan_out, "_INTERVAL_S", 0)

    options = argparse.Namespace(seconds=0, deadline=600)
    assert fan_out._watch(watched.stack, watched.changes, options, Console(quiet=True))

    assert watched.batches_at_stop == 1


def test_sink_without_a_micro_batch_ends_the_demo_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = _Watched(0, 0)
    monkeypatch.setattr(fan_out, "Observer", lambda _: watched)
    monkeypatch.setattr(fan_out, "_INTERVAL_S", 0)

    options = argparse.Namespace(seconds=0, deadline=0)
    assert not fan_out._watch(watched.stack, watched.changes, options, Console(quiet=True))

    assert watched.batches_at_stop == 0


class _Watched:
    """A demo whose micro-batches are done one by one; the sinks have everything with the last one."""

    def __init__(self, *batches: int) -> None:
        """``batches``: how many are done at each look."""
        self._batches = iter(batches)
        self._last = batches[-1]
        self._shown = 0
        self.batches_at_stop: int | None = None
        self.stack = create_autospec(FanOut, instance=True)
        self.changes = create_autospec(Changes, instance=True)
        self.changes.stop.side_effect = self._stop

    def _stop(self) -> None:
        self.batches_at_stop = self._shown

    def look(self) -> Progress:
        self._shown = next(self._batches)
        lag = self._last - self._shown if self._shown else None
        return Progress(phase=Phase.STREAMING, batches=self._shown, lag_records=lag)

    def has_streamed_all(self, _: Progress) -> bool:
        return self.batches_at_stop is not None

    def close(self) -> None:
        pass
