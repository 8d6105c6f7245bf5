"""Records the sample events of the docs from a real run: ``python -m tests.docs.record``.

Starts MySQL, Kafka and a capture, makes one change of each kind, stores the records and renders the pages.
"""

from __future__ import annotations

import time

from tests.docs import samples
from tests.docs.samples import Sample
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.database import Database
from tests.support.topics import Read, read_topic

PREFIX = "shop"
CUSTOMERS, ORDERS = f"{PREFIX}.shop.customers", f"{PREFIX}.shop.orders"
WATERMARKS, SCHEMAS = f"{PREFIX}.tailrace.watermarks", f"{PREFIX}.tailrace.schemas"
TRANSACTIONS, HEARTBEATS, NOTIFICATIONS = f"{PREFIX}.transaction", f"__debezium-heartbeat.{PREFIX}", "notifications"
SETTINGS = {
    "decimal.handling.mode": "string",
    "provide.transaction.metadata": "true",
    "include.schema.changes": "true",
    "heartbeat.interval.ms": "1000",
    "skipped.operations": "none",
    "signal.data.collection": "shop.signals",
    "table.exclude.list": "shop.signals",
    "notification.enabled.channels": "sink",
    "notification.sink.topic.name": NOTIFICATIONS,
    "snapshot.max.threads": "1",
}
PICKED = (
    ("read", CUSTOMERS, 0),
    ("create", CUSTOMERS, 2),
    ("update", CUSTOMERS, 3),
    ("delete", CUSTOMERS, 4),
    ("key-change-delete", CUSTOMERS, 6),
    ("truncate", ORDERS, 2),
    ("transaction-end", TRANSACTIONS, 1),
    ("heartbeat", HEARTBEATS, 0),
    ("schema-change", PREFIX, -1),
    ("watermark-end", WATERMARKS, 2),
    ("table-schema", SCHEMAS, 0),
    ("notification", NOTIFICATIONS, -2),
)
"""(name of the sample, topic, index of the record in its topic)."""


def main() -> None:
    """Record, pick and render."""
    with MySqlServer() as server, KafkaBroker() as broker:
        database = _tables(server)
        settings = properties(server, broker, PREFIX, "shop", SETTINGS)
        with CaptureThread(settings) as capture:
            capture.wait_snapshot()
            eventually(lambda: read_topic(broker.bootstrap, HEARTBEATS), "a heartbeat")
            _changes(database)
            capture.wait_position(server)
            data = '{"data-collections": ["shop.customers"]}'
            database.execute("INSERT INTO signals VALUES ('sig-1', 'execute-snapshot', %s)", (data,))
            # LOW, HIGH and END of the two initial snapshots and of the incremental one.
            eventually(lambda: len(_records(broker.bootstrap, WATERMARKS)) == 9, "the incremental snapshot")
            time.sleep(1)
        read = {topic: _records(broker.bootstrap, topic) for topic in {topic for _, topic, _ in PICKED}}
    samples.store([_sample(name, read[topic][index]) for name, topic, index in PICKED])
    samples.render()


def _records(bootstrap: str, topic: str) -> list[Read]:
    """Return the records of a topic without the watermarks of the keys above a greatest key."""
    return [record for record in read_topic(bootstrap, topic) if b'"lower_open"' not in (record.value or b"")]


def _tables(server: MySqlServer) -> Database:
    database = Database(server, "shop")
    database.execute(
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, email VARCHAR(60) NULL,"
        " balance DECIMAL(10,2) NOT NULL, created DATETIME(3) NOT NULL)"
    )
    database.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT NOT NULL, total DECIMAL(10,2) NOT NULL)")
    database.execute("CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))")
    database.execute(
        "INSERT INTO customers VALUES (1001, 'Ada', 'ada@example.org', 12.50, '2026-11-20 09:30:00.250'),"
        " (1002, 'Ben', NULL, 0, '2026-11-20 10:00:00')"
    )
    database.execute("INSERT INTO orders VALUES (1, 1001, 99.90)")
    return database


def _changes(database: Database) -> None:
    with database.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute(
            "INSERT INTO customers VALUES (1003, 'Cleo', 'cleo@example.org', 5.00, '2026-11-21 08:00:00.125')"
        )
        cursor.execute("INSERT INTO orders VALUES (2, 1003, 20.00)")
        session.commit()
    database.execute("UPDATE customers SET email = 'ben@example.org' WHERE id = 1002")
    database.execute("DELETE FROM customers WHERE id = 1003")
    database.execute("UPDATE customers SET id = 2001 WHERE id = 1001")
    database.execute("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NULL")
    database.execute("UPDATE customers SET balance = 1.00 WHERE id = 1002")
    database.execute("TRUNCATE TABLE orders")


def _sample(name: str, record: Read) -> Sample:
    return Sample(
        name=name,
        topic=record.topic,
        key=None if record.key is None else record.key.decode(),
        value=None if record.value is None else record.value.decode(),
        headers={header: value.decode() for header, value in record.headers.items()},
    )


if __name__ == "__main__":
    main()
