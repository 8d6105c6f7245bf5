"""Whatever ends a snapshot ends the second start with the same words; after the remedy the snapshot goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tailrace.producer.app.capture import run
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.runtime.errors import TailraceError
from tests.support.capture import CaptureThread, configured, properties, verified_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

pytestmark = [pytest.mark.mysql, pytest.mark.kafka]

ROWS = 60
SMALL = {
    "snapshot.max.threads": "1",
    "incremental.snapshot.chunk.size": "10",
    "event.processing.failure.handling.mode": "fail",
}
OTHER_KEY = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)"
OWN_KEY = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)"


@dataclass(frozen=True)
class Case:
    """What happens when the third split is read, what the error says, and what corrects it."""

    happens: tuple[str, ...]
    says: tuple[str, ...]
    remedy: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    corrected: Mapping[str, str] = field(default_factory=dict)
    """Changes of the configuration."""
    says_then: tuple[str, ...] = ()
    """What the second start says, if it finds out earlier."""
    keeps_key: bool = True
    """Changes with another key than that of the splits could not be assigned to them."""


CASES = {
    "value": Case(
        ("UPDATE t SET n = '101:00:00' WHERE id = 45",),
        (
            "a value is no time of a day",
            "101:00:00",
            "column: n",
            "time.precision.mode",
            "event.converting.failure.handling.mode=warn",
        ),
        settings={"time.precision.mode": "connect"},
        corrected={"event.converting.failure.handling.mode": "warn"},
    ),
    "text": Case(
        ("UPDATE t SET u = _ucs2 x'D800' WHERE id = 45",),
        ("text is not valid ucs2", "column: u", "convert the column"),
        # The change that cannot be written is skipped: the split of its key is read later, and has the corrected value.
        remedy=("UPDATE t SET u = 'corrected' WHERE id = 45",),
    ),
    "too large": Case(
        ("UPDATE t SET b = REPEAT('x', 2000000) WHERE id = 45",),
        ('{"id":45}', "producer.override.max.request.size"),
        corrected={"producer.override.max.request.size": "20000000"},
    ),
    "other key": Case(
        (OTHER_KEY,), ("changed during its snapshot", "restore the definition"), remedy=(OWN_KEY,), keeps_key=False
    ),
    "no key": Case(
        ("ALTER TABLE t DROP PRIMARY KEY",),
        ("neither a primary key nor a unique index", "add a key, or name columns in message.key.columns"),
        remedy=("ALTER TABLE t ADD PRIMARY KEY (id)",),
        keeps_key=False,
    ),
    "grant": Case(
        ("REVOKE SELECT ON `{db}`.* FROM `{user}`",),
        ("SELECT command denied", "GRANT SELECT"),
        remedy=("GRANT SELECT ON `{db}`.* TO `{user}`",),
        says_then=("GRANT SELECT",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_error_in_a_split_at_two_starts(
    name: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The splits that were read stay, rows are changed between all starts, and nothing is lost or doubled."""
    case, user = CASES[name], f"u{database.name[-8:]}"
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) NOT NULL, n TIME, "
        "u VARCHAR(9) CHARACTER SET ucs2, b LONGBLOB)"
    )
    database.executemany("INSERT INTO t (id, v) VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])
    database.execute(f"CREATE USER `{user}` IDENTIFIED WITH mysql_native_password BY 'pw'")
    database.execute(f"GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `{user}`")
    # With INSERT the table stays visible: a table that the account cannot see is one that does not exist.
    database.execute(f"GRANT SELECT, INSERT ON `{database.name}`.* TO `{user}`")
    settings = {
        **properties(mysql_server, kafka_broker, prefix, database.name, SMALL),
        "database.user": user,
        "database.password": "pw",
        **case.settings,
    }

    def execute(statements: tuple[str, ...]) -> None:
        for statement in statements:
            database.execute(statement.format(db=database.name, user=user))

    def happens(split: Split) -> None:
        if split.number == 2:
            execute(case.happens)

    try:
        _refuse(settings, case.says, happens)
        if case.keeps_key:
            database.execute("DELETE FROM t WHERE id IN (5, 55)")
        _refuse(settings, case.says_then or case.says)
        execute(case.remedy)
        database.execute("INSERT INTO t (id, v) VALUES (0, 'low'), (100, 'high')")
        if "max.request.size" in str(case.corrected):
            _accept_large_records(kafka_broker, f"{prefix}.{database.name}.t")
        with CaptureThread({**settings, **case.corrected}) as capture:
            capture.wait_snapshot()
            database.execute("UPDATE t SET v = 'last' WHERE id IN (0, 45)")
            capture.wait_position(mysql_server)
    finally:
        database.execute(f"DROP USER `{user}`")
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t").values()
    assert {row["id"]: row["v"] for row in rows} == dict(database.execute("SELECT id, v FROM t"))


def test_a_plan_on_a_new_key_is_repeated_by_excluding_the_table(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The remedy of the hint, where the former key cannot come back: the other tables lose nothing meanwhile."""
    for table in ("t", "other"):
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(9) NOT NULL)")
        database.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])
    settings = properties(mysql_server, kafka_broker, prefix, database.name, SMALL)

    def happens(split: Split) -> None:
        if split.table.table == "t" and split.number == 2:
            database.execute(OTHER_KEY)

    _refuse(settings, ("changed during its snapshot",), happens)
    _refuse(settings, ("changed during its snapshot", "exclude it"))
    database.execute("UPDATE other SET v = 'while' WHERE id = 7")
    with CaptureThread({**settings, "table.exclude.list": f"{database.name}.t"}) as capture:
        capture.wait_snapshot()
        capture.wait_position(mysql_server)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET id = 1000 WHERE v = 'v9'")
        capture.wait_position(mysql_server)
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "other").values()
    assert {row["id"]: row["v"] for row in rows} == dict(database.execute("SELECT id, v FROM other"))


def _refuse(
    settings: Mapping[str, str], says: tuple[str, ...], happens: Callable[[Split], None] = lambda _: None
) -> None:
    """Run until the capture ends with an error that says all of this."""
    # With hooks the readers are threads of this process.
    with pytest.raises(TailraceError) as raised:
        run(configured(settings), threading.Event(), hooks=SnapshotHooks(before_low=happens))
    for part in says:
        assert part in str(raised.value)


def _accept_large_records(broker: KafkaBroker, topic: str) -> None:
    entry = ConfigEntry("max.message.bytes", "20000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = broker.admin()
    for result in admin.incremental_alter_configs([resource]).values():
        result.result()
