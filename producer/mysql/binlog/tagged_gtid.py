"""The GTID event of a transaction with a tag (since MySQL 8.3), which has a form of its own.

It consists of fields, each after its number; numbers are as long as their value needs. In front: the version of the
form, the size, and the last field that a reader must know. Later servers may add fields at the end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_VERSION: Final = 1
_FLAGS, _SERVER, _NUMBER, _TAG, _LAST_COMMITTED, _SEQUENCE, _COMMIT_TIME, _ORIGINAL_TIME = range(8)
_LAST_KNOWN: Final = 11
"""What follows the commit times, up to MySQL 9.7: a length, two versions of servers, a ticket."""


class TaggedGtid(NamedTuple):
    """What is read of the event."""

    server: bytes
    tag: str
    number: int
    commit_stamp: int
    """When the transaction was committed first, in microseconds."""


def read_tagged_gtid(body: bytes) -> TaggedGtid:
    """Read the body of the event, without its checksum. Raises ValueError or IndexError if it has an unknown form."""
    fields = _Fields(body)
    version, size, required = fields.number(), fields.number(), fields.number()
    if version != _VERSION or size != len(body) or required > _LAST_KNOWN:
        raise ValueError(f"a tagged GTID of version {version} with {size} bytes, whose field {required} must be known")
    fields.number_of(_FLAGS)
    fields.require(_SERVER)
    server = bytes(fields.number() for _ in range(16))
    number = fields.number_of(_NUMBER)
    fields.require(_TAG)
    tag = fields.take(fields.number()).decode("ascii")
    fields.number_of(_LAST_COMMITTED)
    fields.number_of(_SEQUENCE)
    stamp = fields.number_of(_COMMIT_TIME)
    if fields.follows(_ORIGINAL_TIME):  # it differs
        stamp = fields.number_of(_ORIGINAL_TIME)
    if number & 1 or not tag:
        raise ValueError("a tagged GTID has a negative number or no tag")
    return TaggedGtid(server, tag, number >> 1, stamp)  # the lowest bit of a number with a sign is the sign


class _Fields:
    """The bytes that are not read yet."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        taken = self._body[self._at : self._at + size]
        if len(taken) < size:
            raise ValueError("a tagged GTID ends early")
        self._at += size
        return taken

    def number(self) -> int:
        """Return the next number: its first byte ends with as many ones as bytes follow, all of them 64 bits."""
        first = self._body[self._at]
        size = (first ^ first + 1).bit_length()
        return int.from_bytes(self.take(size), "little") >> min(size, 8)

    def follows(self, field: int) -> bool:
        """Return whether a field follows."""
        return self._body[self._at : self._at + 1] == bytes([2 * field])

    def require(self, field: int) -> None:
        """Read the number of a field that must follow."""
        if (found := self.number()) != field:
            raise ValueError(f"field {found} of a tagged GTID is where field {field} must be")

    def number_of(self, field: int) -> int:
        """Return the value of a field that must follow, a number."""
        self.require(field)
        return self.number()
