"""Fetches, unpacks and initializes what servers need before the first one starts.

A start deadline then covers only the start itself. Every step happens once per machine; the cache keeps the result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from tests.embedded import iceberg_rest, kafka, mariadb, mysql, postgresql, registry, spark
from tests.embedded.java import EmbeddedServerError, java_home


def _debezium() -> None:
    from tests.debezium_parity.artifacts import connect_classpath, plugin_path  # noqa: PLC0415 - only these tests need it

    connect_classpath()
    plugin_path()


_PREPARE: Final = {
    "kafka": kafka.prepare,
    "spark": spark.session_jars,
    "registry": registry.prepare,
    "iceberg_rest": iceberg_rest.prepare,
    "postgresql": postgresql.prepare,
    "debezium": _debezium,
}

NEEDS: Final = ("mysql", "mariadb", *_PREPARE)
"""What can be prepared."""


def prepare(needs: Iterable[str], *, mysql_versions: Iterable[str] = (), mariadb_versions: Iterable[str] = ()) -> None:
    """Prepare ``needs`` (of NEEDS) and further versions of MySQL and MariaDB; progress goes to stderr."""
    chosen = set(needs)
    if unknown := chosen - set(NEEDS):
        raise EmbeddedServerError(f"cannot prepare {sorted(unknown)}", hint=f"choose from {', '.join(NEEDS)}")
    versions = set(mysql_versions) | ({mysql.default_version()} if "mysql" in chosen else set())
    of_mariadb = set(mariadb_versions) | ({mariadb.default_version()} if "mariadb" in chosen else set())
    if chosen or versions or of_mariadb:
        java_home()  # every download needs it, and most servers
    for version in sorted(versions):
        mysql.prepare(version)
    for version in sorted(of_mariadb):
        mariadb.prepare(version)
    for name, step in _PREPARE.items():
        if name in chosen:
            step()


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(f"usage: python -m tests.embedded.prepare {'|'.join(NEEDS)} ...")
    prepare(sys.argv[1:])
