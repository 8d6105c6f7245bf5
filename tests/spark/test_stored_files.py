"""Files next to a checkpoint or a target: what cannot be read is an error that names the file, never absent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as tp

from tailrace.runtime.stored_format import NewerFormatError
from tailrace.runtime.versions import program_version
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.errors import SinkError, StoredFileError
from tailrace.spark_consumer.files import (
    children,
    delete,
    delete_document,
    document_names,
    exists,
    read_document,
    read_text,
    write_document,
)
from tailrace.spark_consumer.normalize.split_progress import RunProgress, SplitCounts, SplitProgress
from tailrace.spark_consumer.normalize.stored_records import (
    CARRY_OVER_TYPE,
    CarryOver,
    HeldFolder,
    MovedKeys,
    RememberedDeletes,
)
from tailrace.spark_consumer.normalize.table_state import TableState, TableStates
from tailrace.spark_consumer.sink.parquet import _claim_in
from tailrace.spark_consumer.sink.routing import Assignments
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange, require_offsets
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE
from tailrace.spark_consumer.tables.parking import ParkedTables
from tailrace.spark_consumer.tables.progress import TablePosition, TableProgress
from tests.spark.running import run_query
from tests.support.faulty_files import Faults, faulty_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "p.d.t"


@pytest.fixture
def faults(spark: SparkSession) -> Iterator[Faults]:
    """A file system under ``faulty://`` that fails when a test says so."""
    with faulty_files(spark) as found:
        yield found


def value(body: dict[str, Any]) -> int:
    """Return what the documents of these tests have."""
    return int(body["value"])


def test_missing_file_is_absent(spark: SparkSession, tmp_path: Path) -> None:
    assert read_text(spark, f"{tmp_path}/none") is None
    assert read_text(spark, f"{tmp_path}/no/directory") is None
    assert read_document(spark, f"{tmp_path}/none.json", value) is None
    assert children(spark, f"{tmp_path}/none") == []
    assert not exists(spark, f"{tmp_path}/none")
    delete(spark, f"{tmp_path}/none")


def test_error_that_passes_does_no_harm(spark: SparkSession, faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    name = f"faulty://{tmp_path}/a"
    reads: list[Callable[[], object]] = [
        lambda: read_text(spark, name),
        lambda: children(spark, f"faulty://{tmp_path}"),
        lambda: exists(spark, name),
    ]
    for read in reads:
        faults.at(1, 1, lasting=False)
        assert read() in ("content", ["a"], True)


@pytest.mark.parametrize("lasting", [False, True])
def test_error_that_stays_names_file_and_cause(
    spark: SparkSession, faults: Faults, tmp_path: Path, *, lasting: bool
) -> None:
    name = f"faulty://{tmp_path}/a"
    (tmp_path / "a").write_text("content")
    calls: list[Callable[[], object]] = [lambda: read_text(spark, name)]
    if lasting:  # the others wait as long
        calls += [
            lambda: children(spark, f"faulty://{tmp_path}/a"),
            lambda: exists(spark, name),
            lambda: delete(spark, name),
            lambda: write_document(spark, name, {}),
        ]
    for call in calls:
        faults.at(1, lasting=lasting)
        with pytest.raises(StoredFileError, match=f"^{re.escape(name)} cannot be ") as caught:
            call()
        assert "fault at call" in str(caught.value.context["cause"])
        assert caught.value.hint == "restore access to the file system, or the file from a copy of the checkpoint"
        assert faults.calls == (1 if lasting else 3)


def test_wrong_checksum_is_no_missing_file(spark: SparkSession, tmp_path: Path) -> None:
    name, checksum = f"{tmp_path}/a.json", tmp_path / ".a.json.crc"
    write_document(spark, name, {"value": 1})
    checksum.write_bytes(checksum.read_bytes()[:-1] + bytes([checksum.read_bytes()[-1] ^ 0xFF]))

    with pytest.raises(StoredFileError, match=re.escape(f"{name} cannot be read")) as caught:
        read_document(spark, name, value)
    assert "ChecksumException" in str(caught.value.context["cause"])
    assert str(checksum) in caught.value.hint

    checksum.unlink()  # as the hint says
    assert read_document(spark, name, value) == 1


def test_entry_that_cannot_be_opened_is_no_missing_file(spark: SparkSession, tmp_path: Path) -> None:
    # Java says FileNotFoundException.
    (tmp_path / "a.json").mkdir()

    with pytest.raises(StoredFileError, match=r"a\.json cannot be read"):
        read_document(spark, f"{tmp_path}/a.json", value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ('{"format": 1, "val', "is incomplete, or no JSON"),
        ("[1]", "is not a document of Tailrace"),
        ('{"format": 1}', "lacks a field, or has a value of the wrong kind"),
        ('{"value": null}', "lacks a field, or has a value of the wrong kind"),
    ],
)
def test_damaged_document_is_named(spark: SparkSession, tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)

    with pytest.raises(StoredFileError, match=f"^{re.escape(str(file))} {what}\n") as caught:
        read_document(spark, str(file), value)
    assert caught.value.hint.startswith(
        "restore the file from a copy of its directory; without one start with an empty"
    )

    file.write_text('{"format": 1, "value": 1}')
    assert read_document(spark, str(file), value) == 1


def test_offsets_that_cannot_be_read_are_named(spark: SparkSession, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text('v1\n{}\n{"p.d.t":{"0":5}}')
    (offsets / "1").write_text(cut := 'v1\n{}\n{"p.d.t')

    with pytest.raises(SinkError, match="the offsets of a batch cannot be read from the checkpoint") as caught:
        require_offsets(spark, str(tmp_path))
    assert (caught.value.context["path"], caught.value.context["content"]) == (f"{offsets}/1", cut)
    assert caught.value.hint.startswith(
        "restore the whole checkpoint directory, and use a Spark version that this release"
    )

    (offsets / "1").write_text((offsets / "0").read_text())
    require_offsets(spark, str(tmp_path))


def test_document_of_a_later_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"format": 1, "program": "9.8", "value": 1, "later": [2]}))
    assert read_document(spark, str(file), value) == 1

    file.write_text(json.dumps({"format": 2, "program": "9.8", "value": 1}))
    own = program_version()
    with pytest.raises(NewerFormatError, match=rf"Tailrace 9\.8; this is Tailrace {re.escape(own)}"):
        read_document(spark, str(file), value)


@pytest.mark.long
def test_no_killed_write_loses_a_document(spark: SparkSession, faults: Faults, tmp_path: Path) -> None:
    """Each write ends at any of its steps, and the next one at any of its own."""

    def write(number: int, fault: int) -> bool:
        """Write a number, and fail from some call on; return whether it was written."""
        faults.at(fault)
        try:
            write_document(spark, name, {"value": number})
        except StoredFileError:
            return False
        finally:
            faults.none()
        return True

    seen = 0
    for first in range(1, 20):
        for second in range(1, 20):
            name = f"faulty://{tmp_path}/{first}-{second}.json"
            assert write(0, 1 << 30)
            values = {0}
            for number, fault in ((1, first), (2, second)):
                values = {number} if write(number, fault) else {*values, number}
                found = read_document(spark, name, value)
                assert found in values, (first, second, number)
                seen += found == number
            delete_document(spark, name)
            assert read_document(spark, name, value) is None
    assert seen


def test_first_write_that_is_killed_leaves_nothing(spark: SparkSession, faults: Faults, tmp_path: Path) -> None:
    for fault in (1, 2, 3):
        faults.at(fault)
        with pytest.raises(StoredFileError):
            write_document(spark, f"faulty://{tmp_path}/a.json", {"value": 1})
        faults.none()
        assert read_document(spark, f"faulty://{tmp_path}/a.json", value) is None
        assert document_names(spark, f"faulty://{tmp_path}") == []


def test_draft_of_an_earlier_release_is_read_and_removed(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json.tmp").write_text('{"value": 1}')  # its file was removed, and it was not renamed
    name = f"{tmp_path}/a.json"

    assert (document_names(spark, str(tmp_path)), read_document(spark, name, value)) == (["a"], 1)
    write_document(spark, name, {"value": 2})
    assert read_document(spark, name, value) == 2
    delete_document(spark, name)
    assert read_document(spark, name, value) is None


POSITION = (
    '{"topic": "p.d.t", "starts": {"0": 7, "1": -2}, "reason": "r", "hint": "h", "details": {"cause": "c"}, '
    '"parked_at": 1764000000.5, "until": {"0": 9}, "topic_id": "kvvw8Z6QSZ2xsqvPXdBPrg"}'
)
STATE = (
    '{"batch": 3, "idle": false, "unverified": false, "ends": {"0": 5, "1": 7}, "progress": {"open": {"s:1": [3, 1, '
    '17]}, "runs": {"r": {"numbers": [[0, 2]], "bounds": {"first": "a"}, "above": false}}}, "completed": {"s:0": '
    '"1.7.10.0.0"}, "held": [["s:1", 2, ["s:1", "t:0"]]], "released": [["s:0", 1]], "movedKeys": {"partitions": 1, '
    '"passed": {}, "deletes": {}}, "truncated": null, "topicId": "id"}'
)
"""Documents of the release without versions."""


def test_documents_without_a_version_open(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint of an earlier release, copied with its hidden files to a file system that shows them."""
    for name, text in {f"tailrace/parked/{TOPIC}": POSITION, f"tables/{TOPIC}/3": STATE}.items():
        file = tmp_path / f"{name}.json"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        (file.parent / f".{file.name}.crc").write_bytes(b"crc\0")
        (file.parent / f".{file.name}.tmp.crc").write_bytes(b"crc\0")
    checkpoint = f"faulty://{tmp_path}"
    with faulty_files(spark):
        tables = ParkedTables(checkpoint, 100, retry_s=0)
        tables.load(spark)
        before, _ = TableStates(checkpoint).load(spark, TOPIC, 4, TopicRange(TOPIC, {0: OffsetRange(5, 9)}))

    [table] = tables._tables.values()
    assert table.progress is TableProgress.BEHIND
    assert table.position == TablePosition(
        TOPIC,
        {"0": 7, "1": -2},
        hint="h",
        details={"cause": "c"},
        parked_at=1764000000.5,
        until={"0": 9},
        topic_id="kvvw8Z6QSZ2xsqvPXdBPrg",
    )
    assert before == TableState(
        step=3,
        batch=3,
        ends={0: 5, 1: 7},
        progress=SplitProgress({"s:1": SplitCounts(3, 1, 17)}, {"r": RunProgress(((0, 2),), {"first": "a"}, False)}),
        completed={"s:0": Sequence(1, 7, 10, 0, 0)},
        held={HeldFolder("s:1", "2"): ("s:1", "t:0")},
        released=(HeldFolder("s:0", "1"),),
        moved_keys=MovedKeys(1),
        topic_id="id",
    )


def test_documents_of_sinks_without_a_version_open(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "tailrace" / "sinks.json"
    file.parent.mkdir()
    file.write_text('{\n "p.d.t": "one",\n "p.d.u": "two"\n}')
    for _ in range(2):
        assigned = Assignments(str(tmp_path))
        assigned.load(spark)
        assert assigned.problems({TOPIC: "one", "p.d.u": "two"}) == []
        assert len(assigned.problems({TOPIC: "two", "p.d.u": "two"})) == 1
        assigned.note(spark, {"p.d.v": "two"})  # then it has a version
    assert json.loads(file.read_text())["sinks"] == {TOPIC: "one", "p.d.u": "two", "p.d.v": "two"}

    claim, columns = tmp_path / "claim.json", tmp_path / "columns.json"
    claim.write_text('{"topic": "p.d.t", "shard": "{}"}')
    columns.write_text('{"fields":[{"metadata":{},"name":"id","nullable":true,"type":"integer"}],"type":"struct"}')
    assert read_document(spark, str(claim), _claim_in) == (TOPIC, "{}")
    assert read_document(spark, str(columns), tp.StructType.fromJson) == tp.StructType().add("id", tp.IntegerType())


def test_two_drivers_remember_their_own_deletes(spark: SparkSession, tmp_path: Path) -> None:
    """Both process a batch of one checkpoint, before one of them ends. What is lost nevertheless has a way on."""
    columns = f"key binary, op string, seq {SEQUENCE_TYPE.simpleString()}"

    def records(op: str, pos: int, *keys: str) -> DataFrame:
        return spark.createDataFrame([(key.encode(), op, (1, 7, pos, 0, 0)) for key in keys], columns)

    one, other = RememberedDeletes(str(tmp_path)), RememberedDeletes(str(tmp_path))
    folders = one.write(records("d", 300, "a"), TOPIC, 3, above=None)
    others = other.write(records("d", 300, "b"), TOPIC, 3, above=None)
    other.keep(spark, TOPIC, others, 2)
    older = records("u", 200, "a", "b")
    assert [row["key"] for row in one.without_older(older, TOPIC, folders).collect()] == [b"b"]
    assert [row["key"] for row in other.without_older(older, TOPIC, others).collect()] == [b"a"]

    other.keep(spark, TOPIC, others, 3)
    with pytest.raises(StoredFileError, match=f"lacks remembered deletes of topic {TOPIC}") as caught:
        one.without_older(older, TOPIC, folders)
    assert f"tailrace reload --topic {TOPIC}" in caught.value.hint


def test_two_drivers_hold_their_own_records(spark: SparkSession, tmp_path: Path) -> None:
    """The records of the one are there while those of the other are written and removed."""

    def held(offset: int) -> DataFrame:
        row = dict.fromkeys(CARRY_OVER_TYPE.names) | {"offset": offset, "holder": "s:0"}
        return spark.createDataFrame([tuple(row.values())], CARRY_OVER_TYPE)

    one, other = CarryOver(str(tmp_path)), CarryOver(str(tmp_path))
    folder = HeldFolder("s:0", one.write(held(1), TOPIC, 2))
    others = HeldFolder("s:0", other.write(held(2), TOPIC, 2))
    assert [row["offset"] for row in one.read(spark, TOPIC, [folder]).collect()] == [1]
    former = HeldFolder("s:1", other.write(held(3), TOPIC, 1))
    other.remove(spark, TOPIC, (former,), [others], 1)
    assert [row["offset"] for row in one.read(spark, TOPIC, [folder]).collect()] == [1]
    with pytest.raises(StoredFileError, match="lacks records that wait for their split") as caught:
        other.keys(spark, TOPIC, [former])
    assert f"tailrace reload --topic {TOPIC}" in caught.value.hint


def test_offsets_that_cannot_be_read_stop_the_start(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would stop later, with an error that does not name the file."""
    file = tmp_path / "checkpoint" / "offsets" / "7"
    file.parent.mkdir(parents=True)
    given = {
        "bootstrap.servers": "127.0.0.1:9",
        "topic.prefix": "p",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    for text in ("", 'v1\n{"batchWatermarkMs":0}\n{"p.d.t":{"0":'):
        file.write_text(text)
        _, error = run_query(spark, {**given, "sink": "delta", "sink.path": str(tmp_path / "tables")})
        assert isinstance(error, SinkError)
        assert error.context["path"] == str(file)


def test_assignments_that_cannot_be_read_stop_the_start(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "tailrace" / "sinks.json"
    file.parent.mkdir()
    file.write_text("")

    with pytest.raises(StoredFileError, match=r"sinks\.json is empty"):
        Assignments(str(tmp_path)).load(spark)
