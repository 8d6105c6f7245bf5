"""Stored ledgers: those of earlier releases open, those of later ones are refused or read as far as they are known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tailrace.runtime.stored_format import NewerFormatError
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.base import SinkContext
from tailrace.spark_consumer.sink.ledger import LEAVE_OUT, Changelog, Ledger, comparable, missing_target
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.kafka import NEW_TOPIC_REMEDY
from tailrace.spark_consumer.source.watermarks import SnapshotRuns

RECORDED = {
    "one table": (
        '{"tailrace": {"topic": "p.shop.t", "append": {"0": 7, "1": 3}, "merge": {"0": 5}, "id": "x"}}',
        Ledger("p.shop.t", {0: 7, 1: 3}, {0: 5}, "x"),
    ),
    "id not known": (
        '{"tailrace": {"topic": "p.shop.t", "append": {"0": 7}, "merge": {"0": 7}}}',
        Ledger("p.shop.t", {0: 7}, {0: 7}),
    ),
    "changelog": (
        (
            '{"tailrace": {"topic": "p.shop.t", "append": {"0": 7}, "merge": {"0": 7}, '
            '"changelog": {"query": "q", "step": 4, "repeated": true}, "id": "x"}}'
        ),
        Ledger("p.shop.t", {0: 7}, {0: 7}, "x", Changelog("q", 4, repeated=True)),
    ),
    "shared table": (
        (
            '{"tailrace": {"topic": "p.shop_2.t", "append": {"0": 9}, "merge": {"0": 9}, "others": {"p.shop.t": '
            '{"topic": "p.shop.t", "append": {"0": 7}, "merge": {"0": 7}, "id": "x"}}, "id": "y"}}'
        ),
        Ledger(
            "p.shop.t",
            {0: 7},
            {0: 7},
            "x",
            others={"p.shop_2.t": {"topic": "p.shop_2.t", "append": {"0": 9}, "merge": {"0": 9}, "id": "y"}},
        ),
    ),
}
"""Entries as releases before the format had a version have stored them."""


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_ledgers_open(name: str) -> None:
    text, expected = RECORDED[name]

    assert Ledger.newest("p.shop.t", [text]) == expected


def test_unknown_fields_are_left_out() -> None:
    ledger = Ledger("p.shop.t", {0: 7}, {0: 7}, "x", Changelog("q", 4), writer="w")
    stored = json.loads(ledger.metadata)
    assert stored["tailrace"]["format"] == 1
    stored["tailrace"]["later"] = stored["tailrace"]["changelog"]["later"] = 1

    assert Ledger.newest("p.shop.t", [json.dumps(stored)]) == ledger


def test_later_format_is_refused() -> None:
    stored = '{"tailrace": {"topic": "p.shop.t", "format": 2, "program": "99.1", "offsets": []}}'
    with pytest.raises(NewerFormatError, match=r"has format 2, written by Tailrace 99.1; this is Tailrace .* up to 1"):
        Ledger.newest("p.shop.t", [stored])


def test_commit_follows_only_the_ledger_that_is_known() -> None:
    known = Ledger("p.shop.t", {0: 7}, {0: 7}, writer="one")
    Ledger("p.shop.t", {0: 7}, {0: 7}, "x", others={}, writer="one").require_known(known, "t")
    Ledger("p.shop.t").require_known(None, "t")

    for found in (Ledger("p.shop.t", {0: 7}, {0: 7}, writer="two"), Ledger("p.shop.t", {0: 5}, {0: 5}, writer="one")):
        with pytest.raises(SinkError, match="another process has written to t, or restored it") as caught:
            found.require_known(known, "t")
        assert caught.value.hint == "run one query for a table; this one tries again with what the table has"


def test_rows_that_belong_to_no_moment_of_the_source_are_not_compared() -> None:
    runs = SnapshotRuns(ControlTopic("p.tailrace.watermarks", {}))
    context = SinkContext(query_id="q", prefix="p", client={}, runs=runs, topic_id=lambda _: "now")
    own = Ledger("p.shop.t", {0: 7}, {0: 7}, id="now")
    for found, problem, hint in (
        (replace(own, others={}), "t has the rows of several tables, which are not compared yet", LEAVE_OUT),
        (None, "t does not tell what it has applied, so its rows", "let its query write to it once"),
        (replace(own, topic="p.shop.u"), "t belongs to another topic", LEAVE_OUT),
        (replace(own, id="former"), "topic p.shop.t was deleted and created again", NEW_TOPIC_REMEDY),
    ):
        with pytest.raises(SinkError, match=problem) as caught:
            comparable(found, context, "p.shop.t", "t")
        assert caught.value.hint == hint
    assert comparable(own, context, "p.shop.t", "t") == own
    assert missing_target("t", "p.shop.t").hint == "start the query that writes it"
