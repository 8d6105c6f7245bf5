"""Changes bytes as damage and attackers do: bits, lengths, cuts, splices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

_EDGES: Final = bytes((0, 1, 2, 5, 11, 12, 15, 0x7E, 0x7F, 0x80, 0x81, 0xF0, 0xF4, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF))
_LENGTHS: Final = (
    b"\0",
    b"\xff",
    b"\xff\xff",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\xfd\xff\xff\xff",
)
_MOST_BYTES: Final = 4_000


class Sample(NamedTuple):
    """Valid bytes, and where their values and lengths begin."""

    data: bytes
    marks: Sequence[int]


def join(samples: Sequence[Sample]) -> Sample:
    """Return samples one after the other."""
    marks: list[int] = []
    size = 0
    for each in samples:
        marks += [size + mark for mark in each.marks]
        size += len(each.data)
    return Sample(b"".join(each.data for each in samples), marks)


def mutated(sample: Sample, other: Sample, choose: random.Random) -> bytes:
    """Return the bytes with up to four faults; ``other`` is spliced in at times. One input of sixteen stays valid."""
    draw = choose.random
    faults = int(draw() * 16)
    if not faults or not sample.data:
        return sample.data
    made, marks = bytearray(sample.data), sample.marks
    for _ in range(1 + faults // 8 + faults // 15):
        size = len(made)
        if not size or size > _MOST_BYTES:
            break
        at = int(draw() * size)
        if marks and draw() < 0.4:
            at = min(marks[int(draw() * len(marks))], size - 1)
        kind = int(draw() * 10)
        if kind < 3:
            made[at] ^= 1 << int(draw() * 8)
        elif kind < 5:
            made[at] = _EDGES[int(draw() * len(_EDGES))]
        elif kind == 5:
            length = _LENGTHS[int(draw() * len(_LENGTHS))]
            made[at : at + len(length)] = length
        elif kind == 6:
            del made[at : at + 1 + int(draw() * 8)]
        elif kind == 7:
            made[at:at] = choose.randbytes(1 + int(draw() * 8))
        elif kind == 8:
            del made[at + (draw() < 0.5) :]
        else:
            start = int(draw() * len(other.data))
            made[at : at + int(draw() * 9)] = other.data[start : start + int(draw() * 24)]
    return bytes(made)
