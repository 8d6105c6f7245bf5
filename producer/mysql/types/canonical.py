"""The canonical text of a column's values in SQL, as schemas/verification.py defines it.

The session is in UTC and utf8mb4 (connection.py). An expression is what the record contains of a value, not what the
table has: zero dates are NULL or the epoch, and years, fractions and unsigned numbers change as the modes say. So an
equal text says that the target has what the topic should have.

The server has no function for the bits of a double, but a POINT is stored with the bits of its coordinates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from tailrace.producer.model.protocols import CanonicalText, NotComparedError
from tailrace.producer.model.table import Column, quote
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.spatial import NOTHING
from tailrace.producer.mysql.types.temporal import DAY_US
from tailrace.producer.mysql.types.text import UTF8
from tailrace.schemas.verification import NULL, TextForm

_MAX_HEX: Final = 1024
"""Bytes of a column from which its text is a digest: a row of digits must fit max_allowed_packet."""
_SHORTER: Final = UTF8 | {"ascii"}
"""Character sets whose text has no more bytes in utf8mb4; one byte of others is at most four."""
_FIRST_NANOS: Final = "1677-09-21 00:12:43.145225"
_LAST_NANOS: Final = "2262-04-11 23:47:16.854775"


def canonical_text(column: Column, options: ValueOptions) -> CanonicalText:
    """Return the texts of a column. Raises NotComparedError."""
    if column.data_type not in _TEXTS:
        raise NotComparedError(f"{column.data_type}: it has no canonical text")
    form, sql = _TEXTS[column.data_type](column, options)
    return CanonicalText(form, f"IF({quote(column.name)} IS NULL,'{NULL}',{sql})" if column.nullable else sql)


def _integer(column: Column, options: ValueOptions) -> CanonicalText:
    # ZEROFILL pads a text, but not one of a cast. SIGNED wraps a BIGINT UNSIGNED, as the record does.
    kept = column.data_type == "bigint" and column.unsigned and options.bigint_unsigned_handling_mode == "precise"
    kind = "UNSIGNED" if kept else "SIGNED"
    return CanonicalText(TextForm.INTEGER, f"CAST(CAST({quote(column.name)} AS {kind}) AS CHAR)")


def _decimal(column: Column, options: ValueOptions) -> CanonicalText:
    text = f"CAST({quote(column.name)}+0 AS CHAR)"  # without the zeros of ZEROFILL
    if options.decimal_handling_mode == "double":
        return _double(column, options)
    if options.decimal_handling_mode == "string":
        return CanonicalText(TextForm.BYTES, f"HEX({text})")
    if column.scale:
        text = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    return CanonicalText(TextForm.DECIMAL, text)


def _double(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001 - all of them have one signature
    # Behind the SRID and the head of the WKB, low byte first. Times 1e0: the bits, whatever digits are declared.
    name = quote(column.name)
    bits = f"REVERSE(SUBSTRING(POINT(IF({name}=0,0e0,{name}*1e0),0),10,8))"
    return CanonicalText(TextForm.DOUBLE, f"HEX({bits})")


def _bit(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001
    name = quote(column.name)
    if column.length == 1:
        return CanonicalText(TextForm.INTEGER, f"CAST({name}+0 AS CHAR)")
    return CanonicalText(TextForm.BYTES, f"HEX(REVERSE(CAST({name} AS BINARY)))")


def _text(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001
    labels = 4 * sum(len(label) + 1 for label in column.enum_values)
    length = column.length if column.charset in _SHORTER else 4 * column.length
    return _bytes(f"CONVERT({quote(column.name)} USING utf8mb4)", max(length, labels))


def _fixed_binary(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001
    return CanonicalText(TextForm.BYTES, f"HEX(CONVERT({quote(column.name)} USING utf8mb4))")


def _binary(column: Column, options: ValueOptions) -> CanonicalText:
    name, mode = quote(column.name), options.binary_handling_mode
    if mode == "bytes":
        return _bytes(name, column.length)
    if mode == "hex":
        return _bytes(f"LOWER(HEX({name}))", 2 * column.length)
    raise NotComparedError(f"binary.handling.mode={mode}")


def _bytes(sql: str, length: int) -> CanonicalText:
    if length > _MAX_HEX:
        return CanonicalText(TextForm.DIGEST, f"SHA2({sql},256)")
    return CanonicalText(TextForm.BYTES, f"HEX({sql})")


def _date(column: Column, options: ValueOptions) -> CanonicalText:
    return CanonicalText(TextForm.DATE, _day(column, options, lambda text: text, "1970-01-01"))


def _datetime(column: Column, options: ValueOptions) -> CanonicalText:
    clock = f"DATE_FORMAT({quote(column.name)},' %H:%i:%s.%f')"
    if options.time_precision_mode == "connect" and column.data_type == "datetime":
        clock = f"CONCAT(LEFT({clock},13),'000')"
    text = _day(column, options, lambda text: f"CONCAT({text},{clock})", "1970-01-01 00:00:00.000000")
    if options.time_precision_mode == "nanoseconds" and column.data_type == "datetime":
        # Beyond 64 bits a record has NULL.
        text = f"IF({text} BETWEEN '{_FIRST_NANOS}' AND '{_LAST_NANOS}',{text},'{NULL}')"
    return CanonicalText(TextForm.DATETIME, text)


def _day(column: Column, options: ValueOptions, whole: Callable[[str], str], epoch: str) -> str:
    """Return the text of a value with a day; ``whole`` makes it of that of the day, ``epoch`` stands for no day."""
    name = quote(column.name)
    year, no_day = f"YEAR({name})", NULL if column.nullable else epoch
    text = f"DATE_FORMAT({name},'%Y-%m-%d')"
    if options.enable_time_adjuster and column.data_type != "timestamp":
        adjusted = f"{year}+IF({year}<70,2000,IF({year}<100,1900,0))"
        text = f"CONCAT(LPAD({adjusted},4,'0'),DATE_FORMAT({name},'-%m-%d'))"
    # A day that no calendar has is NULL in records, and LAST_DAY knows it.
    exact = (
        f"IF(DAYOFMONTH({name})<=DAYOFMONTH(LAST_DAY(CONCAT({year},'-',MONTH({name}),'-1'))),{whole(text)},'{NULL}')"
    )
    return f"IF({year}*MONTH({name})*DAYOFMONTH({name})=0,'{no_day}',{exact})"


def _time(column: Column, options: ValueOptions) -> CanonicalText:
    mode, name = options.time_precision_mode, quote(column.name)
    if mode == "isostring":
        raise NotComparedError("TIME with time.precision.mode=isostring")
    micros = f"(HOUR({name})*3600+MINUTE({name})*60+SECOND({name}))*1000000+MICROSECOND({name})"
    units = f"IF({name}<TIME'00:00:00',-1,1)*({micros})"
    if mode == "connect":  # no other time has a form in this mode
        text = f"IF({units} BETWEEN 0 AND {DAY_US},CAST(({units}) DIV 1000 AS CHAR),'{NULL}')"
        return CanonicalText(TextForm.INTEGER, text)
    if mode == "nanoseconds":
        units = f"({units})*1000"
    return CanonicalText(TextForm.INTEGER, f"CAST({units} AS CHAR)")


def _year(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001
    return CanonicalText(TextForm.INTEGER, f"CAST(IF({quote(column.name)}=0,1900,{quote(column.name)}+0) AS CHAR)")


def _json(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001
    raise NotComparedError("JSON: the server has no function that writes it as records have it")


def _vector(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001
    raise NotComparedError("VECTOR: the server has no function that shows the bits of its numbers")


def _spatial(column: Column, options: ValueOptions) -> CanonicalText:  # noqa: ARG001
    name, nothing = quote(column.name), f"{hashlib.sha256(NOTHING[4:]).hexdigest()}:00000000"
    text = f"CONCAT(SHA2(SUBSTRING({name},5),256),':',HEX(REVERSE(SUBSTRING({name},1,4))))"
    return CanonicalText(TextForm.GEOMETRY, f"IF(LENGTH({name})=0,'{nothing}',{text})")


_TEXTS: Final[dict[str, Callable[[Column, ValueOptions], CanonicalText]]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), _integer),
    "decimal": _decimal,
    **dict.fromkeys(("float", "double"), _double),
    "bit": _bit,
    **dict.fromkeys(("char", "varchar", "text", "enum", "set"), _text),
    **dict.fromkeys(("binary", "varbinary", "blob"), _binary),
    "date": _date,
    **dict.fromkeys(("datetime", "timestamp"), _datetime),
    "time": _time,
    "year": _year,
    "json": _json,
    **dict.fromkeys(("geometry", "point"), _spatial),
    "vector": _vector,
    **dict.fromkeys(("uuid", "inet4", "inet6"), _fixed_binary),
}
