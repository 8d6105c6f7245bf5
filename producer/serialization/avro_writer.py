"""Avro rows and keys in generated functions."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.producer.mysql.types.base import Expression
from tailrace.producer.serialization.avro_encoding import json_encoder, union, value_encoder
from tailrace.producer.serialization.codegen import CodeBuilder, fstring_literal
from tailrace.schemas.connect import ConnectSchema


class AvroWriter:
    """Collects the columns of one generated function, each as a variable that holds its bytes.

    ``row_and_key`` are the columns of the row and those of the key. ``key_prefix`` precedes each key: the schema id.
    ``exact_nulls`` writes a column's default instead of NULL.
    """

    def __init__(
        self,
        schemas: Sequence[ConnectSchema],
        row_and_key: tuple[Sequence[int], Sequence[int]],
        builder: CodeBuilder,
        *,
        key_prefix: str,
        exact_nulls: bool,
    ) -> None:
        self._schemas = schemas
        self._row, self._key = row_and_key
        self._builder = builder
        self._key_prefix = key_prefix
        self._exact_nulls = exact_nulls
        self._pieces: dict[int, str] = {}

    def _null(self, i: int) -> str:
        schema = self._schemas[i]
        if self._exact_nulls and schema.default is not None:
            return json_encoder(schema)(schema.default)
        return union(schema)[1]

    def null(self, i: int) -> None:
        """See ``RowWriter``."""
        self._pieces[i] = fstring_literal(self._null(i))

    def value(self, i: int, value: Expression) -> list[str]:
        """See ``RowWriter``."""
        self._pieces[i] = f"{{a{i}}}"
        encode = self._builder.bind("avro", value_encoder(value, self._schemas[i], self._null(i)))
        return [f"a{i} = {encode}({value.expr})"]

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """See ``RowWriter``."""
        return self.value(i, value), [f"a{i} = {self._null(i)!r}"]

    def escapes(self) -> list[str]:
        """See ``RowWriter``."""
        return []

    def row(self) -> str:
        """See ``RowWriter``."""
        return self._joined("", self._row)

    def key(self) -> str:
        """See ``RowWriter``."""
        return self._joined(self._key_prefix, self._key)

    def _joined(self, prefix: str, columns: Sequence[int]) -> str:
        return f"f'{fstring_literal(prefix)}{''.join(self._pieces[i] for i in columns)}'"
