"""Avro rows and keys in generated functions; the counterpart of ``json_writer``."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.producer.mysql.types.base import Expression
from tailrace.producer.serialization.avro_encoding import json_encoder, union, value_encoder
from tailrace.producer.serialization.codegen import CodeBuilder, fstring_literal
from tailrace.schemas.connect import ConnectSchema


class AvroWriter:
    """Collects the columns of one generated function, each as a variable that holds its bytes.

    ``row`` are the columns of the row. ``key_open`` stands before each key: the schema's id. ``exact`` writes a
    column's default in place of NULL.
    """

    def __init__(
        self,
        schemas: Sequence[ConnectSchema],
        row: Sequence[int],
        key: Sequence[int],
        space: CodeBuilder,
        *,
        key_open: str,
        exact: bool,
    ) -> None:
        self._schemas = schemas
        self._row = tuple(row)
        self._key = tuple(key)
        self._space = space
        self._key_open = key_open
        self._exact = exact
        self._pieces: dict[int, str] = {}

    def _null(self, i: int) -> str:
        schema = self._schemas[i]
        if self._exact and schema.default is not None:
            return json_encoder(schema)(schema.default)
        return union(schema)[1]

    def null(self, i: int) -> None:
        """See ``Writer``."""
        self._pieces[i] = fstring_literal(self._null(i))

    def value(self, i: int, value: Expression) -> list[str]:
        """See ``Writer``."""
        self._pieces[i] = f"{{a{i}}}"
        encode = self._space.bind("avro", value_encoder(value, self._schemas[i], self._null(i)))
        return [f"a{i} = {encode}({value.expr})"]

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """See ``Writer``."""
        return self.value(i, value), [f"a{i} = {self._null(i)!r}"]

    def escapes(self) -> list[str]:
        """See ``Writer``."""
        return []

    def row(self) -> str:
        """See ``Writer``."""
        return self._joined("", self._row)

    def key(self) -> str:
        """See ``Writer``."""
        return self._joined(self._key_open, self._key)

    def _joined(self, before: str, columns: Sequence[int]) -> str:
        return f"f'{fstring_literal(before)}{''.join(self._pieces[i] for i in columns)}'"
