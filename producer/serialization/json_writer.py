"""JSON rows and keys in generated functions.

The writer knows kinds of expressions, not column types or protocols; ``avro_writer`` is its counterpart for Avro.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.producer.mysql.types.base import NULL, Expression, ExpressionKind
from tailrace.producer.mysql.types.floating import java_double, java_float
from tailrace.producer.mysql.types.text import NEEDS_ESCAPE, escape
from tailrace.producer.serialization.codegen import CodeBuilder, fstring_literal

_QUOTED: Final = frozenset(
    {ExpressionKind.PLAIN, ExpressionKind.TEXT, ExpressionKind.NON_UTF8_TEXT, ExpressionKind.BYTES}
)
_TEXTS: Final = frozenset({ExpressionKind.TEXT, ExpressionKind.NON_UTF8_TEXT})
_INLINE: Final = re.compile(r"[\w\[\]:(), |<>&+*-]+").fullmatch
"""Expressions that an f-string may contain: without quotes and backslashes."""
_NAME_OR_SLICE: Final = re.compile(r"\w+|[SB]\[\w+:\w+\]").fullmatch
"""Expressions that cost as little as a variable."""


def base64_text(data: bytes) -> str:
    """Return bytes as Connect's JSON converter prints them."""
    return b2a_base64(data, newline=False).decode("ascii")


class JsonWriter:
    """Collects the columns of one generated function, then assembles row and key.

    ``row`` are the columns of the row, None for all. ``around_key`` precedes and follows each key; ``nulls`` is what
    replaces null, by column. Both are text of one character per byte.
    """

    def __init__(
        self,
        names: Sequence[str],
        key: Sequence[int],
        builder: CodeBuilder,
        *,
        row: Sequence[int] | None = None,
        around_key: tuple[str, str] = ("", ""),
        nulls: Mapping[int, str] | None = None,
    ) -> None:
        self._names = [f'"{escape(name.encode().decode("latin-1"))}":' for name in names]
        self._row = range(len(names)) if row is None else tuple(row)
        self._key = tuple(key)
        self._builder = builder
        self._around_key = around_key
        self._nulls = nulls or {}
        self._pieces: dict[int, str] = {}
        self._texts: dict[int, Expression] = {}
        self._may_be_null: set[int] = set()

    def null(self, i: int) -> None:
        """See ``RowWriter``."""
        self._pieces[i] = fstring_literal(self._nulls.get(i, NULL))

    def value(self, i: int, value: Expression) -> list[str]:
        """See ``RowWriter``."""
        if value.kind in _TEXTS:
            self._texts[i] = value
            self._pieces[i] = f'"{{t{i}}}"'
            return [f"t{i} = {value.expr}"]
        expr = self._printed(value)
        lines = []
        if i in self._nulls and value.kind not in _QUOTED:
            # The default also replaces a value that Debezium publishes as null (a zero date).
            self._pieces[i] = f"{{c{i}}}"
            self._may_be_null.add(i)
            return [f"c{i} = {expr}"]
        # What row and key share is computed once: a value that is replaced is counted once.
        if not _INLINE(expr) or (i in self._key and not _NAME_OR_SLICE(expr)):
            lines.append(f"v{i} = {expr}")
            expr = f"v{i}"
        self._pieces[i] = f'"{{{expr}}}"' if value.kind in _QUOTED else f"{{{expr}}}"
        return lines

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """See ``RowWriter``."""
        self._pieces[i] = f"{{c{i}}}"
        self._may_be_null.add(i)
        if value.kind in _TEXTS:
            self._texts[i] = value
            return [f"t{i} = {value.expr}", f"c{i} = f'\"{{t{i}}}\"'"], [f"t{i} = ''", f"c{i} = {NULL!r}"]
        expr = self._printed(value)
        if value.kind not in _QUOTED:
            return [f"c{i} = {expr}"], [f"c{i} = {NULL!r}"]
        if _INLINE(expr):
            return [f"c{i} = f'\"{{{expr}}}\"'"], [f"c{i} = {NULL!r}"]
        return [f"v{i} = {expr}", f"c{i} = f'\"{{v{i}}}\"'"], [f"c{i} = {NULL!r}"]

    def _printed(self, value: Expression) -> str:
        if value.kind is ExpressionKind.FLOAT64:
            return f"{self._builder.bind('double', java_double)}({value.expr})"
        if value.kind is ExpressionKind.FLOAT32:
            return f"{self._builder.bind('float', java_float)}({value.expr})"
        if value.kind is ExpressionKind.BYTES:
            return f"{self._builder.bind('base64', base64_text)}({value.expr})"
        return value.expr

    def escapes(self) -> list[str]:
        """Return the lines that escape text, after one check per row that rules out most rows."""
        return self._text_escapes() + [
            f"if c{i} == {NULL!r}: c{i} = {text!r}" for i, text in self._nulls.items() if i in self._may_be_null
        ]

    def _text_escapes(self) -> list[str]:
        if not self._texts:
            return []
        columns = sorted(self._texts)
        joined = f"t{columns[0]}" if len(columns) == 1 else "f'" + "".join(f"{{t{i}}}" for i in columns) + "'"
        lines = [f"t = {joined}", "if not t.isascii() or not t.isprintable() or '\"' in t or '\\\\' in t:"]
        escaped = self._builder.bind("escape", escape)
        other_charsets = [i for i in columns if self._texts[i].transcode is not None]
        for i in other_charsets:
            lines.append(f"    t{i} = {escaped}({self._builder.bind('transcode', self._texts[i].transcode)}(t{i}))")
            lines += self._requote(i)
        if len(other_charsets) < len(columns):
            # Most text that is not ASCII needs no escape, so check again before each column is escaped.
            lines.append(f"    if {self._builder.bind('needs_escape', NEEDS_ESCAPE)}(t):")
            for i in columns:
                if i not in other_charsets:
                    lines.append(f"        t{i} = {escaped}(t{i})")
                    lines += [f"    {line}" for line in self._requote(i)]
        return lines

    def _requote(self, i: int) -> list[str]:
        """Return the line that quotes an escaped text, if its quotes are part of the value because of NULL."""
        return [f"    if c{i} != {NULL!r}: c{i} = f'\"{{t{i}}}\"'"] if i in self._may_be_null else []

    def row(self) -> str:
        """Return the expression of the row's object, as text."""
        return self._object(self._row)

    def key(self) -> str:
        """Return the expression of the key's object and of what surrounds it, as text."""
        return self._object(self._key, *self._around_key)

    def _object(self, columns: Sequence[int], before: str = "", after: str = "") -> str:
        members = ",".join(fstring_literal(self._names[i]) + self._pieces[i] for i in columns)
        return f"f'{fstring_literal(before)}{{{{{members}}}}}{fstring_literal(after)}'"
