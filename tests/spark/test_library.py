"""The library as a program uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.connect import ConnectField
from tests.docs.pages import PAGES, blocks
from tests.docs.samples import ROOT
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark_connect import SparkConnectServer
from tests.spark.records import Feed, connect, table_schema
from tests.support.library_program import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

EXPECTED = {
    "kinds": [
        ["+I", "insert", 1],
        ["+I", "insert", 2],
        ["+I", "insert", 3],
        ["+U", "update_postimage", 1],
        ["-D", "delete", 2],
    ],
    "changelog": [["+I", 1], ["+I", 2], ["+I", 3], ["+U", 1], ["-D", 2], ["-U", 1]],
    "latest": [[1, "+U"], [2, "-D"], [3, "+I"]],
    "table": [[1, "new", 2], [3, "c", 4]],
    "metadata": ["shop", "t", "tailrace.event", True],
}


def fill(broker: KafkaBroker, prefix: str) -> str:
    """Write the changes of a table under two schemas, with one key deleted; return the topic."""
    feed = Feed(broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    a, b = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    feed.write([*table.change("c", None, a, pos=100), *table.change("c", None, b, pos=110)])
    table.schema = table_schema(prefix, "t", ConnectField("n", connect("int32")))
    feed.write(
        [
            table.published(prefix, version=2),
            *table.change("u", {**a, "n": None}, {"id": 1, "name": "new", "n": 2}, pos=120),
            *table.change("d", {**b, "n": None}, None, pos=130),
            *table.change("c", None, {"id": 3, "name": "c", "n": 4}, pos=140),
        ]
    )
    return table.schema.topic


def test_library_in_a_session(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    topic = fill(kafka_broker, prefix)

    assert run(spark, kafka_broker.bootstrap, prefix, topic, tmp_path) == EXPECTED


def test_example_of_the_page_runs(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """The code of docs/library.md, with the names of this test."""
    topic = fill(kafka_broker, prefix)
    page = next(page for page in PAGES if page.name == "library.md")
    [example] = [block for block in blocks(page) if block.language == "python"]
    code = example.text.replace("shop.inventory.orders", topic).replace('prefix="shop"', f'prefix="{prefix}"')
    names = {"spark": spark, "broker": kafka_broker.bootstrap}

    exec(code, {**names, "target": tmp_path / "target", "checkpoint": str(tmp_path / "checkpoint")})  # noqa: S102

    table = spark.read.format("delta").load(str(tmp_path / "target"))
    assert sorted((row["id"], row["name"]) for row in table.collect()) == [(1, "new"), (3, "c")]


@pytest.mark.spark
def test_library_through_spark_connect(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """The same program in a process without Java; its foreachBatch runs in a process of the server."""
    topic = fill(kafka_broker, prefix)
    program = [sys.executable, "-m", "tests.support.library_program"]
    with SparkConnectServer() as server:
        arguments = [server.url, kafka_broker.bootstrap, prefix, topic, str(tmp_path)]
        done = subprocess.run([*program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED
