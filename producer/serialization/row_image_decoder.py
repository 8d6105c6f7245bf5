"""Generates the readers of row images: one function per pattern of NULLs.

With the NULLs known, the values of fixed width between two variable ones are one precompiled struct, together with the
length of the next variable value. A pattern gets its own function when it has come up often enough; until then, and
beyond the bound, a function that tests the bitmap per nullable column serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import ColumnType, FixedWidth, LengthPrefixed, RawBytes
from tailrace.producer.serialization.codegen import CodeBuilder, indent
from tailrace.producer.serialization.row_writer import WriterFactory

ImageFunction = Callable[[bytes, str, int], tuple[str, str, int, KeyTuple | None]]
"""``image(B, S, p) -> (row, key, end, raw key)``, ``p`` after the bitmap; the raw key only where it was asked for."""

_USES_BEFORE_COMPILING: Final = 32
_PATTERNS: Final = 24
_LENGTH_CODES: Final = {1: ("B",), 2: ("H",), 3: ("H", "B"), 4: ("I",)}


class RowImageDecoder:
    """The functions of one table version, by bitmap of NULLs."""

    def __init__(self, types: Sequence[ColumnType], key: Sequence[int], writer: WriterFactory, *, keyed: bool) -> None:
        self._types = tuple(types)
        self._writer = writer
        self._layouts = [t.layout for t in types]  # what cannot be laid out is refused now, not with the first row
        self._key = tuple(key)
        self._keyed = keyed
        self._uses: dict[bytes, int] = {}
        self._any: Callable[..., Any] | None = None
        self.by_bitmap: dict[bytes, ImageFunction] = {}
        """Look here first; what is not here, ``find`` has."""

    def find(self, bitmap: bytes) -> ImageFunction:
        """Return the function for a bitmap, compiled now if it is due."""
        uses = self._uses.get(bitmap, 0) + 1
        if len(self.by_bitmap) < _PATTERNS and (uses >= _USES_BEFORE_COMPILING or not any(bitmap)):
            image = self._compile(int.from_bytes(bitmap, "little"))
            self.by_bitmap[bitmap] = image
            self._uses.pop(bitmap, None)
            return image
        if len(self._uses) < 64 * _PATTERNS:
            self._uses[bitmap] = uses
        if self._any is None:
            self._any = self._compile(None)
        tested, mask = self._any, int.from_bytes(bitmap, "little")
        return lambda data, text, p: tested(data, text, p, mask)

    def _compile(self, nulls: int | None) -> Callable[..., Any]:
        space = CodeBuilder()
        writer = self._writer(space)
        image = _ImageCode(space)
        keys: dict[int, str] = {}
        for i, column in enumerate(self._types):
            in_key = self._keyed and i in self._key
            if nulls is not None:
                if nulls >> i & 1:
                    writer.null(i)
                    keys[i] = "None"
                    continue
                raw = image.read(i, column)
                image.then(writer.value(i, column.from_row_image(raw)))
                if in_key:
                    keys[i] = column.key_from_row_image(raw)
                continue
            if not column.column.nullable:
                raw = image.read(i, column)
                image.then(writer.value(i, column.from_row_image(raw)))
                if in_key:
                    keys[i] = column.key_from_row_image(raw)
                continue
            image.settle()
            branch = _ImageCode(space)
            raw = branch.read(i, column)
            present, absent = writer.value_or_null(i, column.from_row_image(raw))
            branch.then(present)
            if in_key:
                branch.then([f"k{i} = {column.key_from_row_image(raw)}"])
                absent.append(f"k{i} = None")
                keys[i] = f"k{i}"
            branch.settle()
            image.lines += [f"if m >> {i} & 1:", *indent(absent), "else:", *indent(branch.lines)]
        image.settle()
        raw_key = f"({''.join(f'{keys[i]}, ' for i in self._key)})" if self._keyed else "None"
        lines = [*image.lines, *writer.escapes(), f"return {writer.row()}, {writer.key()}, p, {raw_key}"]
        return space.compile("image", "B, S, p" + ("" if nulls is not None else ", m"), lines)


class _ImageCode:
    """Lines that walk an image: offsets are ``p`` plus a constant until a variable value moves ``p``."""

    def __init__(self, space: CodeBuilder) -> None:
        self._space = space
        self.lines: list[str] = []
        self._offset = 0
        self._codes: list[str] = []
        self._names: list[str] = []
        self._later: list[str] = []

    def read(self, i: int, column: ColumnType) -> RawBytes:
        """Read the value of column ``i``; return where it lies, or the names of its parts."""
        layout = column.layout
        if isinstance(layout, FixedWidth):
            parts = tuple(f"f{i}_{k}" for k in range(len(layout.codes)))
            self._codes += layout.codes
            self._names += parts
            return RawBytes(self._space.bind, parts=parts)
        return self._read_prefixed(i, layout)

    def _read_prefixed(self, i: int, layout: LengthPrefixed) -> RawBytes:
        codes = _LENGTH_CODES[layout.width]
        names = [f"n{i}_{k}" for k in range(len(codes))]
        self._codes += codes
        self._names += names
        self._unpack()
        length = names[0] if len(names) == 1 else f"({names[0]} | {names[1]} << 16)"
        start, end = f"i{i}", f"p{i}"
        self.lines += [f"{start} = p + {self._offset}", f"p = {end} = {start} + {length}"]
        self._offset = 0
        self._flush()
        return RawBytes(self._space.bind, start, end)

    def then(self, lines: Sequence[str]) -> None:
        """Add lines that use values read so far; they wait until those are unpacked."""
        self._later += lines
        if not self._names:
            self._flush()

    def settle(self) -> None:
        """Unpack what is pending and bring ``p`` to the offset after it."""
        self._unpack()
        if self._offset:
            self.lines.append(f"p += {self._offset}")
            self._offset = 0
        self._flush()

    def _unpack(self) -> None:
        if not self._names:
            return
        at = f"p + {self._offset}" if self._offset else "p"
        if self._codes == ["B"]:
            self.lines.append(f"{self._names[0]} = B[{at}]")
            self._offset += 1
        else:
            whole = Struct("<" + "".join(self._codes))
            unpack = self._space.bind("unpack", whole.unpack_from)
            self.lines.append(f"{', '.join(self._names)}, = {unpack}(B, {at})")
            self._offset += whole.size
        self._codes, self._names = [], []

    def _flush(self) -> None:
        self.lines += self._later
        self._later = []


def bitmap_size(columns: Sequence[Column]) -> int:
    """Return the bytes of an image's NULL bitmap."""
    return (len(columns) + 7) // 8
