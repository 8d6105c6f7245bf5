"""``tailrace verify --certificates``: copies of captured topics, each with planted faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from structlog.testing import capture_logs

from tailrace.runtime.errors import KafkaUnavailableError
from tailrace.schemas.names import schemas_topic, watermarks_topic
from tailrace.spark_consumer import config
from tailrace.spark_consumer.errors import MissingTopicError
from tailrace.spark_consumer.source.kafka_admin import SharedAdmin, TopicIds
from tailrace.spark_consumer.verify.snapshot import compare_snapshots
from tailrace.spark_consumer.verify.topic_rows import whole_topic
from tests.embedded.kafka import KafkaBroker
from tests.embedded.registry import SchemaRegistry
from tests.spark.running import settings
from tests.support.captured_source import KEYS, CapturedSource, captured
from tests.support.database import Database
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

_IN_A_TRANSACTION = 10


class Copy:
    """Topics of a captured database under another prefix, changed."""

    def __init__(self, source: CapturedSource, prefix: str) -> None:
        self._bootstrap, self._source, self._prefix = source.broker.bootstrap, source.prefix, prefix
        self._producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": f"copy-{prefix}"})
        self._producer.init_transactions(60)
        self.write(schemas_topic(prefix), read_topic(self._bootstrap, schemas_topic(self._source)), {})

    def table(self, topic: str, change: Callable[[list[Read]], list[Read]], **changes: str) -> None:
        """Copy the topic of a table."""
        self.write(self.named(topic), change(read_topic(self._bootstrap, topic)), changes)

    def watermarks(self, change: Callable[[list[Read]], list[Read]]) -> None:
        """Copy the watermarks."""
        found = read_topic(self._bootstrap, watermarks_topic(self._source))
        self.write(watermarks_topic(self._prefix), change(found), {})

    def named(self, topic: str) -> str:
        """Return the name of a copy."""
        return f"{self._prefix}{topic.removeprefix(self._source)}"

    def write(self, topic: str, records: Sequence[Read], changes: dict[str, str]) -> None:
        """Write records in several transactions; the markers leave offsets without a record."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1, config=changes)])[topic].result(60)
        for start in range(0, len(records), _IN_A_TRANSACTION):
            self._producer.begin_transaction()
            for each in records[start : start + _IN_A_TRANSACTION]:
                value = each.value and each.value.replace(
                    b'"topic":"%b.' % self._source.encode(), b'"topic":"%b.' % self._prefix.encode()
                )
                self._producer.produce(topic, value, each.key, partition=0, headers=list(each.headers.items()))
            self._producer.commit_transaction(60)


def splits_of(records: Iterable[Read]) -> list[str]:
    """Return the splits that have rows, in the order of their first ones."""
    return list(dict.fromkeys(each.headers["tailrace.split"].decode() for each in records if is_row(each)))


def is_row(record: Read) -> bool:
    """Whether a record is a row of a snapshot."""
    return record.value is not None and record.json["op"] == "r"


def first_row(records: list[Read], split: str) -> int:
    """Return the index of the first row of a split."""
    return next(
        n for n, each in enumerate(records) if is_row(each) and each.headers["tailrace.split"] == split.encode()
    )


def with_other_rows(records: list[Read]) -> list[Read]:
    """Lose a row of the first split, and change one letter of a row of the second."""
    lost, other = (first_row(records, split) for split in splits_of(records)[:2])
    changed = changed_in(records[other], b'"code":"k', b'"code":"K')
    return [changed if n == other else each for n, each in enumerate(records) if n != lost]


def changed_in(record: Read, text: bytes, by: bytes) -> Read:
    """Replace a text in the value of a record."""
    assert record.value is not None
    assert text in record.value
    return record._replace(value=record.value.replace(text, by))


def with_other_numbers(records: list[Read]) -> list[Read]:
    """Lose all records of the first split, repeat a row of the second, and print one of the third with blanks."""
    gone, other, printed = splits_of(records)[:3]
    blank = first_row(records, printed)
    changed = changed_in(records[blank], b'{"before":null,', b'{"before": null, ')
    left = [changed if n == blank else each for n, each in enumerate(records) if in_split(each) != gone]
    return [*left, records[first_row(records, other)]]


def in_split(record: Read) -> str:
    """Return the split that a record belongs to, '' if it belongs to none."""
    return record.headers.get("tailrace.split", b"").decode()


def without_replaced_row(records: list[Read]) -> list[Read]:
    """Lose the first row of a snapshot whose key has a later record."""
    later = {each.key: n for n, each in enumerate(records)}
    lost = next(n for n, each in enumerate(records) if is_row(each) and later[each.key] > n)
    return [each for n, each in enumerate(records) if n != lost]


def lines(capfdbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, Any]]:
    """Return the printed lines."""
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines() if line.startswith(b"{")]


def test_topics_are_proven_by_their_certificates_and_planted_faults_are_found(
    *,
    source: CapturedSource,
    spark: SparkSession,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    def run(named: str) -> tuple[int, dict[str, dict[str, Any]], dict[str, str]]:
        """Return the exit code, the line of each table, and the difference of each split."""
        capfdbinary.readouterr()
        code = compare_snapshots(spark, config.parse(settings(source.broker, named, tmp_path)))
        found = lines(capfdbinary)
        tables = {line["topic"].rsplit(".", 1)[1]: line for line in found if "result" in line}
        return code, tables, {line["split"]: line["difference"] for line in found if "split" in line}

    code, tables, different = run(source.prefix)

    assert (code, different) == (0, {})
    assert {name: line["result"] for name, line in tables.items()} == dict.fromkeys(KEYS, "equal")
    assert tables["notes"]["rows"] == 60
    assert sum(line["splits"]["equal"] for line in tables.values()) >= 6

    copy = Copy(source, prefix)
    originals = {name: read_topic(source.broker.bootstrap, source.topic(name)) for name in KEYS}
    one, two = splits_of(originals["notes"])[:2]
    lost, more, printed = splits_of(originals["orders"])[:3]
    open_split = splits_of(originals["customers"])[0]
    copy.table(source.topic("notes"), with_other_rows)
    copy.table(source.topic("orders"), with_other_numbers)
    copy.table(source.topic("customers"), list)
    copy.watermarks(
        lambda found: [each for each in found if (each.json["kind"], each.json["split"]) != ("END", open_split)]
    )

    with capture_logs() as logs:
        code, tables, different = run(prefix)

    assert [each["topic"] for each in logs if each["event"] == "table not compared"] == [
        f"{prefix}.{source.database}.unused"
    ]
    assert code == 3
    changed = {one: "missing", two: "different", lost: "missing", more: "extra", printed: "different"}
    assert different == changed | {open_split: "without_end"}
    assert {name: line["result"] for name, line in tables.items()} == {
        "notes": "different",
        "orders": "different",
        "customers": "not decided",
    }
    [error] = [each for each in logs if each["event"] == "table not compared"]
    unused = f"{prefix}.{source.database}.unused"
    assert (error["topic"], f"topic {unused} does not exist" in str(error["error"])) == (unused, True)
    assert "or leave the table out with table.exclude.list" in str(error["error"])

    # A compacted topic lacks the rows that changes of their keys have replaced.
    other = f"{prefix}x"
    copy = Copy(source, other)
    copy.table(source.topic("customers"), without_replaced_row, **{"cleanup.policy": "compact"})
    copy.watermarks(lambda found: [each for each in found if each.json["topic"] == source.topic("customers")])
    with capture_logs() as logs:
        code, tables, different = run(other)
    assert code == 1
    assert tables["customers"]["result"] == "not decided"
    assert list(different.values()) == ["compacted"]
    assert any("the topic is compacted" in each["event"] for each in logs)


@pytest.mark.long
@pytest.mark.parametrize("with_registry", [False, pytest.param(True, marks=pytest.mark.registry)])
def test_topics_of_other_converters_are_proven_too(
    *,
    with_registry: bool,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """JSON with schemas; Avro has no checksums, which the line of the table says."""
    with ExitStack() as stack:
        if with_registry:
            url = stack.enter_context(SchemaRegistry()).url
            own = {"converter": "io.confluent.connect.avro.AvroConverter", "converter.schema.registry.url": url}
        else:
            own = {"converter": "org.apache.kafka.connect.json.JsonConverter", "converter.schemas.enable": "true"}
        converters = {f"{side}.{name}": value for side in ("key", "value") for name, value in own.items()}
        source = captured(database, kafka_broker, prefix, converters)
        given = settings(kafka_broker, prefix, tmp_path) | {
            name: value for name, value in converters.items() if "enable" not in name
        }
        capfdbinary.readouterr()

        assert compare_snapshots(spark, config.parse(given)) == 0

        tables = {line["topic"]: line for line in lines(capfdbinary)}
        assert set(tables) == {source.topic(name) for name in KEYS}
        assert {line["result"] for line in tables.values()} == {"equal"}
        splits = tables[source.topic("notes")]["splits"]
        assert (splits["without_checksum"] > 0) == with_registry


def test_topic_that_kafka_does_not_describe_is_not_gone(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """The ids are read before the comparison: where Kafka did not answer then, the topic may well be there."""
    topic, client = f"{prefix}.shop.t", {"kafka.bootstrap.servers": kafka_broker.bootstrap}
    kafka_broker.create_topic(topic)
    admin = SharedAdmin(client)
    ids = TopicIds(admin)
    try:
        with pytest.raises(KafkaUnavailableError, match=f"end offsets of topic {topic}\n.*run the command again"):
            whole_topic(spark, client, topic, ids)
        with pytest.raises(MissingTopicError, match=r"none does not exist\s+hint: restart the producer"):
            whole_topic(spark, client, f"{prefix}.shop.none", ids)
        ids.refresh(spark, [topic])  # as the next run of the command does
        assert whole_topic(spark, client, topic, ids)[0].end == 0
    finally:
        admin.close()
