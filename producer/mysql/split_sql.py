"""SQL of splits: predicates over a key range, the queries that find bounds, and those of comparisons.

Row comparisons ``(a, b) >= (1, 2)`` are expanded into AND and OR, since MySQL does not range-scan row tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.protocols import RowTexts, SplitQuery
from tailrace.producer.model.split import KeyColumn, Range
from tailrace.producer.model.table import TableId, quote
from tailrace.producer.mysql.key_order import literal, select_key
from tailrace.schemas.verification import BUCKETS, CHECKSUM_DIGITS, Request

MAX_KEY_MS: Final = 60_000
"""The changes of all tables may wait for this query. It is short, unless the end of the index has many deleted rows."""


def _after(columns: Sequence[KeyColumn], key: KeyTuple, last: str) -> str:
    """Return the predicate ``columns > key`` lexicographically; ``last`` is the operator on the last column."""
    alternatives = []
    for depth, column in enumerate(columns):
        operator = last if depth == len(columns) - 1 else last[0]
        terms = [
            f"{quote(c.column.name)} = {literal(c.column, c.collation, key[i])}" for i, c in enumerate(columns[:depth])
        ]
        terms.append(f"{quote(column.column.name)} {operator} {literal(column.column, column.collation, key[depth])}")
        alternatives.append(" AND ".join(terms))
    if len(alternatives) == 1:
        return alternatives[0]
    # The leading bound on the first column lets the optimizer start a range scan there.
    first = columns[0]
    lead = f"{quote(first.column.name)} {last[0]}= {literal(first.column, first.collation, key[0])}"
    return f"({lead} AND ({' OR '.join(f'({alternative})' for alternative in alternatives)}))"


def predicate(columns: Sequence[KeyColumn], span: Range) -> str:
    """Return the WHERE clause (without WHERE) of a range; ``1=1`` for the whole table."""
    terms = []
    if span.lower is not None:
        terms.append(_after(columns, span.lower, ">="))
    if span.upper is not None:
        terms.append(_after(columns, span.upper, "<=" if span.closed else "<"))
    return " AND ".join(terms) or "1=1"


def _keys(columns: Sequence[KeyColumn]) -> str:
    return ", ".join(select_key(c.column) for c in columns)


def max_key(table: TableId, columns: Sequence[KeyColumn]) -> str:
    """Return the query for the greatest key; no row when the table is empty. The server ends it after a minute."""
    order = ", ".join(f"{quote(c.column.name)} DESC" for c in columns)
    return (
        f"SELECT /*+ MAX_EXECUTION_TIME({MAX_KEY_MS}) */ {_keys(columns)} FROM {table.quoted} ORDER BY {order} LIMIT 1"
    )


def min_key(table: TableId, columns: Sequence[KeyColumn], span: Range) -> str:
    """Return the query for the least key in a range."""
    return _ordered(table, columns, span, offset=0)


def next_bound(table: TableId, columns: Sequence[KeyColumn], span: Range, size: int) -> str:
    """Return the query for the key ``size`` rows into the range, in the server's order; no row: the range has fewer."""
    return _ordered(table, columns, span, offset=size)


def bound_after(table: TableId, columns: Sequence[KeyColumn], key: KeyTuple, span: Range) -> str:
    """Return the query for the least key greater than ``key`` within the range.

    Needed where the splitting columns are only the beginning of the key, so that many rows share one value.
    """
    order = ", ".join(quote(c.column.name) for c in columns)
    rest = predicate(columns, Range(None, span.upper, span.closed))
    where = f"{_after(columns, key, '>')} AND {rest}"
    return f"SELECT {_keys(columns)} FROM {table.quoted} WHERE {where} ORDER BY {order} LIMIT 1"


def _ordered(table: TableId, columns: Sequence[KeyColumn], span: Range, *, offset: int) -> str:
    order = ", ".join(quote(c.column.name) for c in columns)
    return (
        f"SELECT {_keys(columns)} FROM {table.quoted} WHERE {predicate(columns, span)} "
        f"ORDER BY {order} LIMIT 1 OFFSET {offset}"
    )


def bucket_sums(task: SplitQuery, texts: RowTexts, sample: int) -> str:
    """Return the query for the first buckets of a range: number, rows, rows without a text, XOR of checksums' halves.

    MySQL 5.7 and MariaDB have BIT_XOR of 64 bits only. The inner query of a range is not merged, so the checksum of a
    row is made once. That of a whole table, which is not cut, may not fit into memory.
    """
    half = CHECKSUM_DIGITS // 2
    xor = ", ".join(
        f"BIT_XOR(CAST(CONV({part},16,10) AS UNSIGNED))" for part in (f"LEFT(c,{half})", f"RIGHT(c,{half})")
    )
    number = _number(joined(texts.key), BUCKETS)
    # A row without a text must not be left out silently.
    chosen = f" AND COALESCE({number},0)<{sample}" if sample < BUCKETS else ""
    rows = f"SELECT {number} AS b, {_checksum(joined(texts.row))} AS c FROM {_range(task)}{chosen}"
    once = "/*+ NO_MERGE(t) */ " if task.columns else ""
    return f"SELECT {once}b, COUNT(*), COUNT(*)-COUNT(c), {xor} FROM ({rows}) AS t GROUP BY b"


def compared_rows(task: SplitQuery, texts: RowTexts, request: Request) -> str:
    """Return the query for the text of the key, and the checksum or the text, of the requested rows of a range."""
    assert request.keys is not None
    key, row, listed = joined(texts.key), joined(texts.row), ",".join(map(str, request.keys.numbers))
    return (
        f"SELECT {key}, {row if request.texts else _checksum(row)} FROM {_range(task)} "
        f"AND {_number(key, request.keys.modulus)} IN ({listed})"
    )


def joined(texts: Sequence[str]) -> str:
    """Return the text of a row, or of a key."""
    # CONCAT and not CONCAT_WS, which leaves out what is NULL.
    return "CONCAT({})".format(",',',".join(texts)) if len(texts) > 1 else texts[0]


def _number(key: str, modulus: int) -> str:
    return f"CRC32({key})%{modulus}"


def _checksum(row: str) -> str:
    return f"LEFT(SHA2({row},256),{CHECKSUM_DIGITS})"


def _range(task: SplitQuery) -> str:
    return f"{task.table.quoted} WHERE {predicate(task.columns, task.range)}"
