"""Session variables: what a SELECT returns must not depend on the global settings of the server.

Variables that an expression of a virtual column reads (``div_precision_increment``, ``default_week_format``) keep the
server's value: the binlog has what the sessions of the applications computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

SESSION_VARIABLES: Final[Mapping[str, str]] = {
    # The binlog has TIMESTAMP values in UTC.
    "time_zone": "'+00:00'",
    # ANSI_QUOTES, NO_BACKSLASH_ESCAPES and PAD_CHAR_TO_FULL_LENGTH change the meaning or the result of a SELECT.
    "sql_mode": "'NO_ENGINE_SUBSTITUTION'",
    "transaction_isolation": "'READ-COMMITTED'",
    # CHAIN would keep the metadata locks of a split, RELEASE would end the session with it.
    "completion_type": "'NO_CHAIN'",
    # A limit would cut off the rows of a split. The greatest value is "no limit"; DEFAULT would be the global value.
    "sql_select_limit": "18446744073709551615",
    # The first comparison of an AUTO_INCREMENT column with NULL would find the last inserted row.
    "sql_auto_is_null": "OFF",
    # Large tables are read as a whole, however long it takes.
    "sql_big_selects": "ON",
    "max_execution_time": "0",
    "sql_buffer_result": "OFF",
    # A sort compares whole keys; the longest key of an index has 3072 bytes.
    "max_sort_length": "4096",
    # In seconds. Behind LOCK TABLES a reader would wait for a year, with a split that holds the stream.
    "lock_wait_timeout": "60",
    # The server must not disconnect a reader that waits for Kafka. In seconds.
    "net_write_timeout": "3600",
    "net_read_timeout": "3600",
    "wait_timeout": "86400",
    # The text of SHOW CREATE TABLE and of information_schema.
    "sql_quote_show_create": "ON",
}
"""What every server since 5.7.20 knows, as SQL."""

_NEWER: Final[Mapping[int, Mapping[str, str]]] = {
    # A statistics cache of one day (the default of 8.0) would hide the rows of a new table from the splitter.
    80000: {"information_schema_stats_expiry": "0"},
    # The secondary engine has its own copy of a table, which is behind.
    80013: {"use_secondary_engine": "OFF"},
    # The binlog has the generated invisible primary key, so the catalog must show it.
    80030: {"show_gipk_in_create_table_and_information_schema": "ON"},
}
"""What newer servers know besides, by their first version."""


def set_all() -> str:
    """Return one statement that sets every variable."""
    newer = "".join(f" /*!{version} , {_items(variables)} */" for version, variables in _NEWER.items())
    return f"SET {_items(SESSION_VARIABLES)}{newer}"


def set_each() -> Iterator[str]:
    """Yield one statement for each variable, for a server that lacks some of them."""
    for variables in (SESSION_VARIABLES, *_NEWER.values()):
        yield from (f"SET {name} = {value}" for name, value in variables.items())


def _items(variables: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in variables.items())
