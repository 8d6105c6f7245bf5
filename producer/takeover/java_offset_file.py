"""The offset file of a standalone Connect worker or an embedded Debezium: a map of byte arrays in Java serialization.

Both store the records of the offset topic in one file, ``offset.storage.file.filename``. It holds one object, a
``HashMap<byte[], byte[]>`` in exactly one form; any other content is rejected.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from tailrace.producer.errors import TakeoverError

_STREAM: Final = b"\xac\xed\x00\x05"
_MAP: Final = (
    b"\x73\x72\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03"
    b"\x00\x02F\x00\x0aloadFactorI\x00\x09threshold\x78\x70"
)
"""An object and its class: two numbers, then the data that writeObject adds."""
_BLOCK: Final = b"\x77\x08"
"""The data of writeObject: capacity and size."""
_ARRAY: Final = b"\x75"
_BYTES_CLASS: Final = b"\x72\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00\x78\x70"
_BYTES_CLASS_REFERENCE: Final = b"\x71\x00\x7e\x00\x02"
"""Reference to the class, used from the second array on: the third handle of the stream."""
_NULL: Final = b"\x70"
_END: Final = b"\x78"


def read_offset_file(path: Path) -> dict[bytes, bytes | None]:
    """Return the records of a file. Raises TakeoverError if it cannot be read or has another form."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TakeoverError(
            "the offset file cannot be read",
            hint="pass the offset.storage.file.filename of the worker or the engine as --offset-file",
            file=path,
            cause=error.strerror,
        ) from error
    if not data:
        return {}  # a new file is empty until the first flush
    try:
        return _Reader(data).map()
    except (_FormatError, struct.error) as error:
        raise TakeoverError(
            "the file is not an offset file of a connector",
            hint="stop the worker or the engine, and pass its offset.storage.file.filename as --offset-file",
            file=path,
            begins=data[:16].hex(),
        ) from error


class _FormatError(Exception):
    """A byte differs from the expected form."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._class_seen = False

    def map(self) -> dict[bytes, bytes | None]:
        self._expect(_STREAM + _MAP)
        self._take(8)  # load factor, threshold
        self._expect(_BLOCK)
        _, size = struct.unpack(">ii", self._take(8))
        found: dict[bytes, bytes | None] = {}
        for _ in range(size):
            key = self._array()
            value = self._array()
            if key is not None:  # a connector without partitions: not a database connector
                found[key] = value
        self._expect(_END)
        if self._at != len(self._data):
            raise _FormatError
        return found

    def _array(self) -> bytes | None:
        if self._data.startswith(_NULL, self._at):
            self._at += len(_NULL)
            return None
        self._expect(_ARRAY)
        self._expect(_BYTES_CLASS_REFERENCE if self._class_seen else _BYTES_CLASS)
        self._class_seen = True
        (length,) = struct.unpack(">i", self._take(4))
        return self._take(length)

    def _expect(self, expected: bytes) -> None:
        if self._take(len(expected)) != expected:
            raise _FormatError

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if not self._at <= end <= len(self._data):
            raise _FormatError
        taken, self._at = self._data[self._at : end], end
        return taken
