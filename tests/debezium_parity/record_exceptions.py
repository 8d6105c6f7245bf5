"""Which differences of envelopes, headers, partitions and schema changes the named exceptions cover."""

from __future__ import annotations

import json
import re
from typing import Final

from tests.debezium_parity.auxiliary_records import XA
from tests.debezium_parity.difference import Difference, in_snapshot, numbers
from tests.debezium_parity.payload import has_schema
from tests.debezium_parity.records import CHANGES, HEARTBEATS, TRANSACTIONS
from tests.debezium_parity.statements import XA_COMMITTED, XA_ONE_PHASE, XA_ROLLED_BACK
from tests.debezium_parity.tokens import member

KEYLESS: Final = frozenset({"k_none", "k_unique_null", "k_unique_inline"})
"""The tables without key."""
CHANGED_TABLES: Final = frozenset({"alters", "alters2", "altered", "alike", "again", "late_key", "ghost"})
"""The tables whose definition changes while streaming."""

_PREFIXED: Final = frozenset(
    {
        ("value", "source", "name"),
        ("key", "serverName"),
        ("header", "__debezium.context.connectorLogicalName"),
    }
)
_DEFINITION: Final = frozenset(
    {"typeName", "typeExpression", "jdbcType", "length", "scale", "charsetName", "defaultValueExpression"}
)


def processing_time(difference: Difference) -> bool:
    """The time at which the connector processed the event."""
    times = {("value", name) for name in ("ts_ms", "ts_us", "ts_ns")}
    return difference.record.table != TRANSACTIONS and difference.path in times


def version(difference: Difference) -> bool:
    """The version of the connector."""
    return difference.path == ("value", "source", "version")


def prefix(difference: Difference) -> bool:
    """The topic prefix."""
    return difference.path in _PREFIXED


def run_id(difference: Difference) -> bool:
    """The id of the run in the headers."""
    return difference.path == ("header", "__debezium.context.runId")


def tailrace_headers(difference: Difference) -> bool:
    """The additional headers of Tailrace; all others are the same in the same order."""
    if difference.path != ("headers",):
        return False
    expected, actual = (re.findall(r"'([^']*)'", str(side)) for side in (difference.expected, difference.actual))
    return [name for name in actual if not name.startswith("tailrace.")] == expected


def snapshot_position(difference: Difference) -> bool:
    """The position and the time of a snapshot row."""
    names = ("ts_ms", "ts_us", "ts_ns", "file", "pos")
    return in_snapshot(difference) and difference.path in {("value", "source", name) for name in names}


def snapshot_marker(difference: Difference) -> bool:
    """The marker of the first and the last snapshot row."""
    return in_snapshot(difference) and difference.path == ("value", "source", "snapshot")


def rows_of_renamed_table(difference: Difference) -> bool:
    """A row of the incremental snapshot of a table that was renamed into the capture."""
    record = difference.record
    if difference.path != ("record",) or difference.expected is not None or record.value is None:
        return False
    return in_snapshot(difference) and member(record.value, "source", "snapshot") == '"incremental"'


def snapshot_flag(difference: Difference) -> bool:
    """The flag of a streamed record, null in Debezium's."""
    sides = difference.expected, difference.actual
    return difference.path == ("value", "source", "snapshot") and sides == ("null", '"false"')


def table_without_key(difference: Difference) -> bool:
    """Keys, partitions and headers of tables without key, and the counts of their transactions."""
    if difference.record.table == TRANSACTIONS:
        counts = member(difference.record.value or "", "data_collections")
        tables = [str(member(each, "data_collection")) for each in counts] if isinstance(counts, list) else []
        keyless = any(table.strip('"').rpartition(".")[2] in KEYLESS for table in tables)
        return keyless and difference.path[-1] == "event_count"
    if difference.path == ("value", "transaction", "total_order"):
        # In this transaction, an update of a table without key comes before the row.
        sides = numbers(difference)
        return difference.record.table == "ops" and sides is not None and sides[1] - sides[0] == 1
    if difference.record.table in KEYLESS and difference.path[:2] == ("value", "transaction"):
        return True
    return difference.record.table in KEYLESS and difference.path[0] in {"key", "partition", "record", "headers"}


def key_with_schema(difference: Difference) -> bool:
    """The partition of a key that contains the prefix in its schema."""
    if difference.record.table in {CHANGES, TRANSACTIONS, HEARTBEATS}:
        return False
    return difference.path in {("partition",), ("order",)} and has_schema(difference.record.raw.key)


def truncate_partition(difference: Difference) -> bool:
    """The partition of a truncate record."""
    return difference.path == ("partition",) and difference.record.op == "t"


def statement_row(difference: Difference) -> bool:
    """The row number of a schema change."""
    return difference.record.op == "ddl" and difference.path == ("value", "source", "row") and difference.actual == "0"


def later_definition(difference: Difference) -> bool:
    """The definition of a table that later statements alter."""
    return _changed_table(difference) in CHANGED_TABLES


def server_definition(difference: Difference) -> bool:
    """Types, lengths and defaults of a definition in a schema change."""
    return bool(_changed_table(difference)) and difference.path[-1] in _DEFINITION


def field_doc(difference: Difference) -> bool:
    """The doc of an Avro field, absent in Debezium's."""
    if difference.path[0] != "avro" or not isinstance(difference.actual, tuple):
        return False
    return difference.expected == tuple(each for each in difference.actual if each[0] != '"doc"')


def _changed_table(difference: Difference) -> str:
    """Return the table whose definition differs in a streamed schema change, else an empty text."""
    if difference.record.op != "ddl" or difference.path[:2] != ("value", "tableChanges"):
        return ""
    changes = member(difference.record.value or "", "tableChanges")
    name = member(changes[int(difference.path[2])], "id") if isinstance(changes, list) else ""
    return json.loads(str(name)).rpartition('."')[2].strip('"') if difference.path[3:4] == ("table",) else ""


def prepared_transaction(difference: Difference) -> bool:
    """The position and time of the rows of a prepared transaction, and rows that were rolled back."""
    if difference.record.table == XA_ROLLED_BACK:
        return difference.path == ("record",) and difference.actual is None and not in_snapshot(difference)
    names = ("ts_ms", "ts_us", "ts_ns", "pos", "gtid")
    return difference.record.table == XA_COMMITTED and difference.path in {("value", "source", name) for name in names}


def xa_metadata(difference: Difference) -> bool:
    """The thread and the transaction block of rows of XA transactions, BEGIN and END; all are missing in Debezium's."""
    if difference.record.table == TRANSACTIONS:
        return XA in difference.record.identity and difference.path == ("record",) and difference.expected is None
    paths = {("value", "source", "thread"), ("value", "transaction")}
    tables = {XA_COMMITTED, XA_ONE_PHASE}
    return difference.record.table in tables and difference.path in paths and difference.expected == "null"
