"""The checksums of a table at its target, by native expressions of Spark (schemas/verification.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.verification import BUCKETS, BucketSum, ComparedTable, Keys
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.verify.canonical import canonical_text, checksum, joined, key_number

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import types as tp

_HALF: Final = 16
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """The columns that both sides compare, and why others are not."""

    names: tuple[str, ...]
    excluded: Mapping[str, str]


def compared_columns(table: ComparedTable, columns: tp.StructType) -> ComparedColumns:
    """Choose the columns of a table that rows with ``columns`` have texts of."""
    names, excluded = [], dict(table.excluded)
    kinds = {field.name.lower(): field.dataType for field in columns}
    for column in table.columns:
        kind = kinds.get(column.name.lower())
        if kind is None:
            excluded[column.name] = "the target has no such column"
        elif canonical_text(fn.col(quote(column.name)), column.form, kind) is None:
            excluded[column.name] = f"the target stores it as {kind.simpleString()}"
        else:
            names.append(column.name)
    return ComparedColumns(tuple(names), excluded)


class RowTexts:
    """The texts of rows; ``columns`` are those that are compared."""

    def __init__(self, table: ComparedTable, columns: Collection[str]) -> None:
        self._columns = [column for column in table.columns if column.name in columns]
        self._key = table.key

    def key(self, rows: DataFrame) -> Column:
        """Return the text of the key of rows that have the key columns."""
        return joined([self._texts(rows, self._key)[name] for name in self._key])

    def checksums(self, rows: DataFrame) -> DataFrame:
        """Return ``bucket``, ``key`` (the text), ``checksum`` and ``text`` of rows."""
        texts = self._texts(rows, [column.name for column in self._columns])
        key = joined([texts[name] for name in self._key])
        # The texts are one step: an expression that calls Java may not be below an aggregate.
        made = rows.select(key.alias("key"), joined(list(texts.values())).alias("text"))
        return made.select(
            key_number(fn.col("key"), BUCKETS).alias("bucket"),
            "key",
            checksum(fn.col("text")).alias("checksum"),
            "text",
        )

    def _texts(self, rows: DataFrame, names: Collection[str]) -> dict[str, Column]:
        kinds = {field.name.lower(): field.dataType for field in rows.schema}
        texts = {}
        for column in self._columns:
            if column.name in names:
                text = canonical_text(fn.col(quote(column.name)), column.form, kinds[column.name.lower()])
                assert text is not None, column.name
                texts[column.name] = text
        return texts


def bucket_sums(checksums: DataFrame) -> dict[int, BucketSum]:
    """Return the sums of the buckets that have rows."""
    halves = [fn.substring(fn.col("checksum"), start, _HALF) for start in (1, 1 + _HALF)]
    # conv gives the bits of 64 as a signed number.
    numbers = [fn.bit_xor(fn.conv(half, 16, -10).cast("bigint")) for half in halves]
    found = checksums.groupBy("bucket").agg(fn.count("*").alias("rows"), *numbers).collect()
    return {
        number: BucketSum(number, rows, "".join(f"{half & _MASK:016x}" for half in xor)) for number, rows, *xor in found
    }


def row_contents(checksums: DataFrame, keys: Keys, *, texts: bool) -> dict[str, list[str]]:
    """Return the checksums of some rows, or their texts, by the text of the key: a table can have a key twice."""
    rows: dict[str, list[str]] = defaultdict(list)
    for key, content in checksums.where(is_in(keys)).select("key", "text" if texts else "checksum").collect():
        rows[key].append(content)
    return rows


def is_in(keys: Keys) -> Column:
    """Return whether the text of a key, in the column ``key``, is one of some."""
    return key_number(fn.col("key"), keys.modulus).isin(list(keys.numbers))
