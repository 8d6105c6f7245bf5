"""The checksums of a table at its target, by native expressions of Spark (schemas/verification.py).

The session is in UTC, and ``spark.sql.ansi.enabled`` is true: otherwise Spark casts small decimals to texts with an
exponent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.verification import BUCKETS, CHECKSUM_DIGITS, NULL, BucketSum, ComparedTable, Keys, TextForm
from tailrace.spark_consumer.sink.table_names import quote

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


_INTEGERS: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType)
_TEXT: Final = (tp.StringType, tp.BinaryType)
_BITS: Final = 16
_SRID_DIGITS: Final = 8


def canonical_text(value: Column, form: TextForm, kind: tp.DataType) -> Column | None:
    """Return the texts of a column of some type; None if values of the type have no text of that form."""
    text = _FORMS[form](value, kind)
    return None if text is None else fn.coalesce(text, fn.lit(NULL))


def joined(texts: Sequence[Column]) -> Column:
    """Return the text of a row, or of a key."""
    return fn.concat_ws(",", *texts)


def checksum(text: Column) -> Column:
    """Return the checksum of a row, from its text."""
    return fn.substring(fn.sha2(text.cast("binary"), 256), 1, CHECKSUM_DIGITS)


def key_number(key: Column, modulus: int) -> Column:
    """Return the CRC-32 of the text of a key, modulo a number; with ``BUCKETS`` it is the bucket."""
    return fn.crc32(key.cast("binary")) % modulus


def _integer(value: Column, kind: tp.DataType) -> Column | None:
    if isinstance(kind, tp.BooleanType):
        return value.cast("int").cast("string")
    whole = isinstance(kind, _INTEGERS) or (isinstance(kind, tp.DecimalType) and not kind.scale)
    return value.cast("string") if whole else None


def _decimal(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, tp.DecimalType):
        return _integer(value, kind)
    text = value.cast("string")
    return fn.regexp_replace(text, r"\.?0+$", "") if kind.scale else text


def _double(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, (tp.FloatType, tp.DoubleType)):
        return None
    # Databases lose the sign of zero.
    wide = fn.when(value == 0, fn.lit(0.0)).otherwise(value.cast("double"))
    # A method that is called with NULL fails.
    bits = fn.java_method(fn.lit("java.lang.Double"), fn.lit("doubleToLongBits"), fn.coalesce(wide, fn.lit(0.0)))
    return fn.when(value.isNotNull(), fn.lpad(fn.hex(bits.cast("bigint")), _BITS, "0"))


def _bytes(value: Column, kind: tp.DataType) -> Column | None:
    return fn.hex(value) if isinstance(kind, _TEXT) else None


def _digest(value: Column, kind: tp.DataType) -> Column | None:
    return fn.sha2(value.cast("binary"), 256) if isinstance(kind, _TEXT) else None


def _date(value: Column, kind: tp.DataType) -> Column | None:
    return value.cast("string") if isinstance(kind, tp.DateType) else None


def _datetime(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, (tp.TimestampType, tp.TimestampNTZType)):
        return None
    return fn.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS")


def _geometry(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, tp.StructType) or not {"wkb", "srid"} <= set(kind.names):
        return None
    srid = fn.lpad(fn.hex(fn.coalesce(value["srid"], fn.lit(0))), 2 * _SRID_DIGITS, "0")
    text = fn.concat(fn.sha2(value["wkb"], 256), fn.lit(":"), fn.substring(srid, _SRID_DIGITS + 1, _SRID_DIGITS))
    return fn.when(value.isNotNull(), text)


_FORMS: Final[dict[TextForm, Callable[[Column, tp.DataType], Column | None]]] = {
    TextForm.INTEGER: _integer,
    TextForm.DECIMAL: _decimal,
    TextForm.DOUBLE: _double,
    TextForm.BYTES: _bytes,
    TextForm.DIGEST: _digest,
    TextForm.DATE: _date,
    TextForm.DATETIME: _datetime,
    TextForm.GEOMETRY: _geometry,
}
