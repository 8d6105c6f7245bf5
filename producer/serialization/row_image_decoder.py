"""Generates the decoders of row images: one function per pattern of NULLs.

With the NULLs known, one precompiled struct reads all fixed-width values between two variable ones, together with the
length of the next variable value. A pattern gets its own function once it is frequent; until then, and if there are too
many patterns, a function that tests the bitmap for each nullable column is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.mysql.types.base import ColumnType, FixedWidth, LengthPrefixed, RawBytes
from tailrace.producer.serialization.codegen import CodeBuilder, indent
from tailrace.producer.serialization.row_writer import WriterFactory
from tailrace.runtime.errors import SchemaError

ImageFunction = Callable[[bytes, str, int], tuple[str, str, int, KeyTuple | None]]
"""``image(B, S, p) -> (row, key, end, raw key)``; ``p`` follows the bitmap, the raw key is None unless requested."""

_USES_BEFORE_COMPILING: Final = 32
_MAX_PATTERNS: Final = 24
_LENGTH_CODES: Final = {1: ("B",), 2: ("H",), 3: ("H", "B"), 4: ("I",)}


class RowImageDecoder:
    """The decoders of one table version, by NULL bitmap."""

    def __init__(
        self, types: Sequence[ColumnType], key: Sequence[int], new_writer: WriterFactory, *, raw_keys: bool
    ) -> None:
        self._types = tuple(types)
        self._new_writer = new_writer
        self._layouts = [t.layout for t in types]  # an unsupported layout raises now, not with the first row
        self._key = tuple(key)
        self._raw_keys = raw_keys
        self._uses: dict[bytes, int] = {}
        self._any: Callable[..., Any] | None = None
        self._required = sum(1 << i for i, each in enumerate(self._types) if not each.column.nullable)
        self.bitmap_width = (len(self._types) + 7) // 8
        """Bytes of an image's NULL bitmap."""
        self.by_bitmap: dict[bytes, ImageFunction] = {}
        """Functions for frequent patterns; ``find`` returns the others."""

    def decode(self, data: bytes, text: str, p: int) -> tuple[str, str, int, KeyTuple | None]:
        """Decode the image at ``p``."""
        start = p + self.bitmap_width
        bitmap = data[p:start]
        return (self.by_bitmap.get(bitmap) or self.find(bitmap))(data, text, start)

    def find(self, bitmap: bytes) -> ImageFunction:
        """Return the function for a bitmap; compile it if the pattern is frequent."""
        uses = self._uses.get(bitmap, 0) + 1
        if len(self.by_bitmap) < _MAX_PATTERNS and (uses >= _USES_BEFORE_COMPILING or not any(bitmap)):
            image: ImageFunction = self.compile(self._nulls(bitmap))
            self.by_bitmap[bitmap] = image
            self._uses.pop(bitmap, None)
            return image
        if len(self._uses) < 64 * _MAX_PATTERNS:
            self._uses[bitmap] = uses
        return self._for_any(bitmap)

    def check(self, data: bytes, text: str, p: int) -> None:
        """Decode the image at ``p`` without the functions for patterns.

        Which of them exist depends on the rows before, and they read several values at once: of the faults of an image
        they find another one first. An error must depend on the image alone.
        """
        start = p + self.bitmap_width
        self._for_any(data[p:start])(data, text, start)

    def _for_any(self, bitmap: bytes) -> ImageFunction:
        if self._any is None:
            self._any = self.compile(None)
        decode_any, nulls = self._any, self._nulls(bitmap)
        return lambda data, text, p: decode_any(data, text, p, nulls)

    def _nulls(self, bitmap: bytes) -> int:
        """Return the bits of a bitmap; those after the last column have no meaning."""
        nulls = int.from_bytes(bitmap, "little")
        if nulls & self._required:
            raise SchemaError(
                "a column declared NOT NULL is NULL",
                hint="restart the producer to read the table's definition again",
                bitmap=bitmap.hex(),
            )
        return nulls

    def compile(self, nulls: int | None) -> Callable[..., Any]:
        """Compile the function for a bitmap; None: for all bitmaps, with the bitmap as a fourth parameter ``m``."""
        builder = CodeBuilder()
        writer = self._new_writer(builder)
        image = _ImageCode(builder)
        keys: dict[int, str] = {}
        for i, column in enumerate(self._types):
            in_key = self._raw_keys and i in self._key
            if nulls is not None and nulls >> i & 1:
                writer.null(i)
                keys[i] = "None"
            elif nulls is not None or not column.column.nullable:
                raw = image.read(i, column)
                image.then(writer.value(i, column.from_row_image(raw)))
                if in_key:
                    keys[i] = column.key_from_row_image(raw)
            else:
                image.finish()
                branch = _ImageCode(builder)
                raw = branch.read(i, column)
                present, absent = writer.value_or_null(i, column.from_row_image(raw))
                branch.then(present)
                if in_key:
                    branch.then([f"k{i} = {column.key_from_row_image(raw)}"])
                    absent.append(f"k{i} = None")
                    keys[i] = f"k{i}"
                branch.finish()
                image.lines += [f"if m >> {i} & 1:", *indent(absent), "else:", *indent(branch.lines)]
        image.finish()
        raw_key = f"({''.join(f'{keys[i]}, ' for i in self._key)})" if self._raw_keys else "None"
        lines = [*image.lines, *writer.escapes(), f"return {writer.row()}, {writer.key()}, p, {raw_key}"]
        return builder.compile("image", "B, S, p" + ("" if nulls is not None else ", m"), lines)


class _ImageCode:
    """Lines that read an image: offsets are ``p`` plus a constant until a variable value moves ``p``."""

    def __init__(self, builder: CodeBuilder) -> None:
        self._builder = builder
        self.lines: list[str] = []
        self._offset = 0
        self._codes: list[str] = []
        self._names: list[str] = []
        self._pending: list[str] = []

    def read(self, i: int, column: ColumnType) -> RawBytes:
        """Read the value of column ``i``; return its bounds, or the names of its parts."""
        layout = column.layout
        if isinstance(layout, FixedWidth):
            parts = tuple(f"f{i}_{k}" for k in range(len(layout.codes)))
            self._codes += layout.codes
            self._names += parts
            return RawBytes(self._builder.bind, parts=parts)
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
        return RawBytes(self._builder.bind, start, end)

    def then(self, lines: Sequence[str]) -> None:
        """Add lines that use the values read so far; they follow the lines that unpack these values."""
        self._pending += lines
        if not self._names:
            self._flush()

    def finish(self) -> None:
        """Unpack the pending values and move ``p`` behind them."""
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
            layout = Struct("<" + "".join(self._codes))
            unpack = self._builder.bind("unpack", layout.unpack_from)
            self.lines.append(f"{', '.join(self._names)}, = {unpack}(B, {at})")
            self._offset += layout.size
        self._codes, self._names = [], []

    def _flush(self) -> None:
        self.lines += self._pending
        self._pending = []
