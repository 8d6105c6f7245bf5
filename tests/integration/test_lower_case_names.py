"""A server that stores the names of tables in lower case, while statements write them in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.names import state_topic
from tests.embedded.mysql import LOWER_CASE, MySqlServer, default_version
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.database import Database
from tests.support.incremental_checks import incremental_rows
from tests.support.incremental_window import rows_of_reader
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

CHANGES = {
    "skipped.operations": "none",
    "topic.creation.default.partitions": 1,
    "signal.data.collection": "Shop.Signals",
    "signal.enabled.channels": "source",
    "table.exclude.list": ".*[.]signals",
}


@pytest.mark.mysql(f"{default_version()}{LOWER_CASE}")
def test_statements_are_matched_in_any_case(kafka_broker: KafkaBroker, prefix: str) -> None:
    """TRUNCATE, DROP, RENAME, and a signal table whose configured name has other letters."""
    with MySqlServer(settings={"lower_case_table_names": 1}) as server:
        database = Database(server, "Shop")
        database.execute("CREATE TABLE Orders (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute("CREATE TABLE Signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
        database.execute("INSERT INTO ORDERS VALUES (1, 'before')")
        settings = properties(server, kafka_broker, prefix, "SHOP", CHANGES)
        with CaptureThread(settings) as capture:
            capture.wait_snapshot()
            database.execute("TRUNCATE TABLE ORDERS")
            database.execute("INSERT INTO Orders VALUES (2, 'kept'), (3, 'other')")
            database.execute("RENAME TABLE Orders TO OldOrders")
            database.execute("CREATE TABLE oRDERS (id INT PRIMARY KEY, v VARCHAR(50))")
            database.execute("INSERT INTO orders VALUES (4, 'new')")
            database.execute("DROP TABLE oLDoRDERS")
            database.execute(
                "INSERT INTO Signals VALUES ('1', 'execute-snapshot', '{\"data-collections\": [\"SHOP.ORDERS\"]}')"
            )
            capture.wait_position(server)
            eventually(lambda: incremental_rows(kafka_broker, prefix, "shop", "orders"), "the signal", 60)
        records = records_of(kafka_broker.bootstrap, prefix, "shop", "orders")
        assert [r.json["op"] for r in records if r.value].count("t") == 1
        assert rows_of_reader(records) == {2: "kept", 3: "other", 4: "new"}
        state = {r.key: r.value for r in read_topic(kafka_broker.bootstrap, state_topic(prefix))}
        assert [key for key, value in state.items() if key and key.startswith(b"table/") and value] == [
            b"table/shop.orders"
        ]
        database.drop()
