"""The compiled extension, from ``codec.pyx`` and the files that it includes."""

from collections.abc import Callable, Sequence
from typing import Protocol

INTERFACE: int
"""Changes with the signatures below, so that a module of another version is not used."""

class Column(Protocol):
    """How the values of one column are written. A value that is declined gets ``call``, or its row is declined."""

    @property
    def kind(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def avro(self) -> bool: ...
    @property
    def head(self) -> bytes: ...
    @property
    def tag(self) -> bytes: ...
    @property
    def null(self) -> bytes: ...
    @property
    def zero(self) -> bytes | None: ...
    @property
    def unit(self) -> int: ...
    @property
    def adjust(self) -> int: ...
    @property
    def exact(self) -> bool: ...
    @property
    def scale(self) -> int: ...
    @property
    def call(self) -> Callable[[bytes], str] | None: ...

class PacketEncoder:
    """Encodes row packets of the text protocol."""

    def __init__(
        self,
        columns: Sequence[Column],
        key: Sequence[tuple[bytes, int]],
        key_start: bytes,
        key_end: bytes,
        row_end: bytes,
        prefix: bytes,
    ) -> None: ...
    def encode(
        self,
        data: bytes | bytearray | memoryview,
        start: int,
        end: int,
        suffix: bytes,
        records: list[tuple[bytes, bytes]],
    ) -> tuple[int, int, int]:
        """Append the records of complete packets; return the offset after them, their checksum, and the declined size.

        The third item is 0 if all complete packets are encoded, else the size of the packet that is declined, whose
        bytes start at the offset.
        """
