"""A random table in a random mode and format: valid samples of its rows, and the encoders that get the damaged ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.schemas.rowkind import Op
from tests.bench.codec_speed import EVENT
from tests.fuzz.mutations import Sample, join
from tests.support.both_codecs import BothCodecs
from tests.support.codec_matrix import COLUMNS, FORMS, MODES, Form, cell, image_values, packet

if TYPE_CHECKING:
    from tailrace.producer.native.codec import Records

SELECT: Final = "select"
OPS: Final = (SELECT, "inserts", "updates", "deletes")
_CODES: Final = {"inserts": Op.CREATE, "updates": Op.UPDATE, "deletes": Op.DELETE}
_ID: Final = Column("id", "int", nullable=False)
_END: Final = Sample(b"\x05\0\0\x09\xfe\0\0\2\0", (0, 4))
_ROWS: Final = 12
_SAMPLES: Final = 60
_LONGEST: Final = 400
"""Of a value: long ones are few, so that damage finds the structure."""
Compiled = Callable[[bytes, bool], bool]
"""Gives bytes to the compiled code alone, with or without raw keys; returns whether it declined any."""


class Subject:
    """Made from the numbers that ``choose`` draws, and from nothing else."""

    def __init__(self, choose: random.Random) -> None:
        picked = [choose.choice(COLUMNS)[0] for _ in range(choose.randint(1, 7))]
        columns = [replace(column, name=f"c{i}", nullable=choose.random() < 0.6) for i, column in enumerate(picked)]
        key = choose.choice((("id",), ("id",), (columns[0].name,), ("id", columns[-1].name)))
        dropped = {column.name for column in columns if column.name not in key and choose.random() < 0.1}
        self.table = Table(TableId("d", "t"), (_ID, *columns), key)
        self.options: ValueOptions = choose.choice(MODES)
        self.form: Form = choose.choice(FORMS)
        self._plain = choose.random() < 0.7
        self.codecs = BothCodecs(self.table, self.options, self.form, plain=self._plain, dropped=frozenset(dropped))
        self._visible = [i for i, column in enumerate(self.table.columns) if column.name not in dropped]
        self._picked = [_ID, *picked]
        self._choose = choose
        values = [_values(column, self.options) for column in self._picked]
        self._images = [self._image([each.images for each in values[1:]]) for _ in range(_ROWS)]
        self._packets = [self._packet([values[i].texts for i in self._visible]) for _ in range(_ROWS)]
        self._samples = {op: [self._sample(op) for _ in range(_SAMPLES)] for op in OPS}

    def __str__(self) -> str:
        columns = ", ".join(map(repr, self.table.columns))
        return f"{columns}; key {self.table.key}; {self.options}; {self.form}; plain {self._plain}"

    def sample(self, op: str) -> Sample:
        """Return valid bytes of one to three rows."""
        return self._samples[op][int(self._choose.random() * _SAMPLES)]

    def _sample(self, op: str) -> Sample:
        pick = self._choose.choice
        rows = self._choose.randint(1, 3)
        if op == SELECT:
            made = [pick(self._packets) for _ in range(rows)]
            return join([*made, _END] if self._choose.random() < 0.3 else made)
        if op != "updates":
            return join([pick(self._images) for _ in range(rows)])
        pairs = [pick(self._images) for _ in range(rows)]
        return join(
            [each for old in pairs for each in (old, old if self._choose.random() < 0.6 else pick(self._images))]
        )

    def compare(self, op: str, data: bytes, *, keys: bool) -> bool:
        """Encode with both; return whether that ended in an error. Raises AssertionError if they differ."""
        found = (
            self.codecs.snapshot(data, 0, len(data))
            if op == SELECT
            else self.codecs.event(op, data, 0, len(data), keys=keys)
        )
        return isinstance(found[0], type)

    @cached_property
    def compiled(self) -> dict[str, Compiled | None]:
        """The compiled encoders; None where the extension leaves a table to Python."""
        return {op: self._packet_encoder() if op == SELECT else self._image_encoder(op) for op in OPS}

    def _packet_encoder(self) -> Compiled | None:
        loops = self.codecs.native.native
        assert loops is not None
        native = loops.packets

        def run(data: bytes, keys: bool) -> bool:
            at, declines = 0, 0
            while True:
                at, _, declined = native.encode(data, at, len(data), b"}", _records())
                at += declined
                if not declined or at >= len(data):
                    return bool(declines or declined)
                declines += 1

        return run

    def _image_encoder(self, op: str) -> Compiled | None:
        options, code, loops = self.codecs.options, _CODES[op], self.codecs.native.native
        assert loops is not None
        skips = options.skip_unchanged and code is Op.UPDATE
        native = loops.images(code)
        if native is None:
            return None
        frame = self.codecs.format.frame()
        head, tail = frame.event(EVENT, code)

        def run(data: bytes, keys: bool) -> bool:
            raw: list[Any] | None = [] if keys and not skips else None
            return native.encode(data, 0, len(data), head, tail, 0, raw, EVENT) is None

        return run

    def _image(self, values: Sequence[_Choice]) -> Sample:
        choose = self._choose
        chosen = [struct.pack("<i", choose.choice((1, -5))), *(each.pick(choose) for each in values)]
        nulls = [column.nullable and choose.random() < 0.15 for column in self.table.columns]
        bitmap = sum(1 << i for i, null in enumerate(nulls) if null)
        parts = [bitmap.to_bytes((len(nulls) + 7) // 8, "little")]
        parts += [value for value, null in zip(chosen, nulls, strict=True) if not null]
        return _marked(parts)

    def _packet(self, values: Sequence[_Choice]) -> Sample:
        choose = self._choose
        cells = []
        for i, each in zip(self._visible, values, strict=True):
            null = self.table.columns[i].nullable and choose.random() < 0.15
            cells.append(cell(None if null else each.pick(choose)))
        size = sum(map(len, cells))
        return _marked([size.to_bytes(3, "little"), b"\x09", *cells])


class _Choice(NamedTuple):
    """Values of a column: those that the compiled code encodes, or has encoded, and all."""

    encoded: Sequence[bytes]
    every: Sequence[bytes]

    def pick(self, choose: random.Random) -> bytes:
        return choose.choice(self.encoded if self.encoded and choose.random() < 0.9 else self.every)


class _Values(NamedTuple):
    texts: _Choice
    images: _Choice


@cache
def _records() -> Records:
    from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

    return codec.Records()


def _values(column: Column, options: ValueOptions) -> _Values:
    """Return the values of a column in a result set and in a row image."""
    texts = next(values for each, values in COLUMNS if each == column) if column.name != _ID.name else (b"1", b"-7")
    texts = tuple(value for value in texts if len(value) < _LONGEST)
    images = tuple(value for value in image_values(column, random.Random(7)) if len(value) < _LONGEST)
    table = Table(TableId("d", "t"), (_ID, replace(column, name="c")), ("id",))
    codec = TableCodec(table, "topic", CodecOptions(options))
    assert codec.native is not None
    packets, inserts = codec.native.packets, codec.native.images(Op.CREATE)

    def is_encoded(text: bytes) -> bool:
        data = packet(b"1", text)
        return packets.encode(data, 0, len(data), b"}", _records())[0] == len(data)

    def is_image_encoded(image: bytes) -> bool:
        data = b"\0\1\0\0\0" + image
        return inserts is not None and inserts.encode(data, 0, len(data), b"", b"", 0, None, EVENT) is not None

    return _Values(
        _Choice(tuple(filter(is_encoded, texts)), texts), _Choice(tuple(filter(is_image_encoded, images)), images)
    )


def _marked(parts: Sequence[bytes]) -> Sample:
    marks, at = [], 0
    for part in parts:
        marks.append(at)
        at += len(part)
    return Sample(b"".join(parts), marks)
