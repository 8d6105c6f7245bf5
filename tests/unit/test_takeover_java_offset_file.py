"""The offset file of a standalone worker: its one form, and the rejection of every other."""

from __future__ import annotations

import struct
from pathlib import Path

import orjson
import pytest

from tailrace.producer.errors import TakeoverError
from tailrace.producer.takeover.connect_offsets import find_offset_in_file
from tailrace.producer.takeover.java_offset_file import read_offset_file

_MAP = bytes.fromhex(
    "aced0005"  # a stream
    "7372" + "0011" + b"java.util.HashMap".hex() + "0507dac1c31660d1" + "03"  # an object of a class that writes itself
    "0002" + "46" + "000a" + b"loadFactor".hex() + "49" + "0009" + b"threshold".hex() + "7870"
)
_CLASS = bytes.fromhex("7572" + "0002" + b"[B".hex() + "acf317f8060854e0" + "02" + "0000" + "7870")
_CLASS_REFERENCE = bytes.fromhex("75" + "71" + "007e0002")

OFFSET = {"ts_sec": 1700000000, "file": "binlog.000003", "pos": 1549, "server_id": 1, "event": 4, "row": 2}


def written(records: dict[bytes | None, bytes | None]) -> bytes:
    """Return the Java serialization of a map."""
    parts = [_MAP, struct.pack(">fi", 0.75, 12), b"\x77\x08", struct.pack(">ii", 16, len(records))]
    start = _CLASS
    for data in (part for record in records.items() for part in record):
        if data is None:
            parts.append(b"\x70")
        else:
            parts += [start, struct.pack(">i", len(data)), data]
            start = _CLASS_REFERENCE
    return b"".join([*parts, b"\x78"])


def _file(folder: Path, content: bytes) -> Path:
    path = folder / "offsets"
    path.write_bytes(content)
    return path


def _key(connector: str, prefix: str) -> bytes:
    return orjson.dumps([connector, {"server": prefix}])


def test_the_offset_of_the_prefix_is_found_among_others(tmp_path: Path) -> None:
    records: dict[bytes | None, bytes | None] = {
        b'["files",{"filename":"a"}]': b'{"position":7}',
        None: b"{}",
        _key("old", "shop"): orjson.dumps(OFFSET),
        _key("gone", "other"): None,
    }
    path = _file(tmp_path, written(records))

    offset = find_offset_in_file(path, prefix="shop", connector=None)

    assert (offset.partition.connector, offset.file, offset.pos) == ("old", "binlog.000003", 1549)
    assert (offset.events, offset.rows) == (4, 2)
    with pytest.raises(TakeoverError, match=r"(?s)offset was deleted.*hint: start `tailrace produce` without"):
        find_offset_in_file(path, prefix="other", connector=None)
    with pytest.raises(TakeoverError, match=r"has no offset of a connector with topic\.prefix=nobody") as error:
        find_offset_in_file(path, prefix="nobody", connector=None)
    assert error.value.context["seen"] == "gone (other), old (shop)"
    assert error.value.hint.startswith("take topic.prefix from the connector, and its worker's offset.storage.topic")


def test_empty_map_and_empty_file_have_no_offsets(tmp_path: Path) -> None:
    assert read_offset_file(_file(tmp_path, written({}))) == {}
    assert read_offset_file(_file(tmp_path, b"")) == {}


def test_truncated_file_is_rejected(tmp_path: Path) -> None:
    whole = written({_key("old", "shop"): orjson.dumps(OFFSET), b"k": b"v"})
    for length in range(1, len(whole)):
        with pytest.raises(TakeoverError, match=r"(?s)is not an offset file.*hint: stop the worker or"):
            read_offset_file(_file(tmp_path, whole[:length]))


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        written({b"k": b"v"}) + b"\x00",
        written({b"k": b"v"}).replace(b"java.util.HashMap", b"java.util.HashSet"),
        written({b"k": b"v"}).replace(_CLASS_REFERENCE, bytes.fromhex("7571007e0003")),
        written({b"k": b"v"}).replace(b"\x00\x00\x00\x01k", b"\xff\xff\xff\xffk"),
        written({b"k": b"v"}).replace(b"\x00\x00\x00\x01v", b"\x7f\xff\xff\xffv"),
    ],
)
def test_another_form_is_rejected(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TakeoverError, match=r"(?s)is not an offset file.*hint: stop the worker or"):
        read_offset_file(_file(tmp_path, content))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TakeoverError, match="cannot be read") as error:
        read_offset_file(tmp_path / "none")
    assert error.value.hint == "pass the offset.storage.file.filename of the worker or the engine as --offset-file"
