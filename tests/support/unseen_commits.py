"""MySQL servers whose commits wait between the binlog and the engine, and settings of one without GTIDs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.embedded.mysql import MySqlServer
from tests.support.capture import eventually
from tests.support.replication import run

WITHOUT_GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
SEMI_SYNC = {
    "plugin_load_add": "semisync_master.so",
    "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
    "rpl_semi_sync_master_wait_for_slave_count": 1,
    # Without a replica that acknowledges, a transaction stays between binlog and engine for this long.
    "rpl_semi_sync_master_timeout": 600_000,
    "rpl_semi_sync_master_wait_no_slave": "ON",
}
"""Holds a commit between binlog and engine; the package of the older version lacks the plugin."""


def held(server: MySqlServer, commit: Callable[[], object]) -> threading.Thread:
    """Run a commit that waits for a replica, and return when the binlog has it."""
    before = run(server, "SHOW MASTER STATUS")
    run(server, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
    thread = threading.Thread(target=commit)
    thread.start()
    eventually(lambda: run(server, "SHOW MASTER STATUS") != before, "the transaction in the binlog", 60)
    return thread


def release(server: MySqlServer, *threads: threading.Thread) -> None:
    """Let the commits end."""
    run(server, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    for thread in threads:
        thread.join(60)
