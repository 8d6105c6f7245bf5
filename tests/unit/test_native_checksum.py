"""The CRC-32 of the compiled extension is that of zlib, by the table and by multiplication without carry."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from tailrace.producer.native import loader

pytestmark = pytest.mark.skipif(bool(loader.unused_because()), reason=f"no extension: {loader.unused_because()}")


@pytest.mark.parametrize("offset", range(17))
def test_all_lengths_and_alignments(offset: int) -> None:
    from tailrace.producer.native.codec import checksum  # noqa: PLC0415 - the module is optional

    data = memoryview(random.Random(offset).randbytes(1200))  # a part of bytes would be a copy
    for size in (*range(300), 1023, 1024, 1025, 1183):
        part = data[offset : offset + size]
        assert checksum(part) == crc32(part), size


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_equal_bytes(byte: bytes) -> None:
    from tailrace.producer.native.codec import checksum  # noqa: PLC0415 - the module is optional

    for size in (0, 1, 15, 16, 63, 64, 65, 79, 80, 128, 4096, 1_000_003):
        assert checksum(byte * size) == crc32(byte * size), size
