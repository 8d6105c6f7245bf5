"""Prints the CPU time of handing records to Kafka's client: by the compiled extension and by Python's binding.

Run: python -m tests.bench.sending_speed [ROUNDS]. One process encodes rows of the table ``customer`` and sends them in
transactions to one partition of an embedded broker, the two ways in turns. *Own*: the calling thread, encoding
included. *Client*: the threads of librdkafka. *Broker*: the Kafka broker.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.codec import EventRows, SnapshotRows
from tailrace.producer.serialization.table_codec import TableCodec
from tests.bench.codec_speed import EVENT, ROWS, SNAPSHOT, customer, image, packets
from tests.bench.usage import TICK_S
from tests.embedded.kafka import KafkaBroker
from tests.embedded.prepare import prepare
from tests.support.values import DEFAULT_CODEC

_RECORDS: Final = 150_000
_HEADERS: Final[Headers] = [
    ("tailrace.split", b"shop.customer.1.12"),
    ("tailrace.event", b"1.0"),
    ("tailrace.schema", b"0123456789abcdef"),
    ("__debezium.context.connectorLogicalName", b"shop"),
    ("__debezium.context.taskId", b"0"),
    ("__debezium.context.connectorName", b"mysql"),
    ("__debezium.context.runId", b"3e11fa47-71ca-11e1-9e33-c80aa9429562"),
]


def main(arguments: list[str]) -> None:
    """Measure; print a line for each way and kind of input, with the least figures of all rounds."""
    prepare(("kafka",))
    best: dict[str, tuple[float, ...]] = {}
    with KafkaBroker() as broker:
        broker.create_topic("rows")
        for turn in range(int(arguments[0]) if arguments else 4):
            # Each way is the first one in turn: the broker becomes quicker.
            for way in ("extension", "binding") if turn % 2 else ("binding", "extension"):
                for kind in ("snapshot", "event of 1 row"):
                    used = _turn(broker, way, kind)
                    name = f"{kind}, by the {way}"
                    best[name] = tuple(map(min, zip(best.get(name, used), used, strict=True)))
    print(f"{'µs per record':36} {'own':>7} {'client':>7} {'broker':>7}")
    for name, used in sorted(best.items()):
        print(f"{name:36} " + " ".join(f"{each * 1e6 / _RECORDS:7.2f}" for each in used))


def _turn(broker: KafkaBroker, way: str, kind: str) -> tuple[float, ...]:
    """Return the CPU seconds of this thread, of the others, and of the broker."""
    table, rows = customer()
    codec = TableCodec(table, "p.db.table", DEFAULT_CODEC)
    block, images = packets(rows), [image(row) for row in rows]
    settings = KafkaSettings(broker.bootstrap, {}, transaction_timeout_ms=60_000)
    with closing(TransactionalProducer(settings, "bench")) as producer:
        if way == "binding":
            producer._sender = None
        producer.init_transactions()
        start = _spent(broker)
        for _ in range(_RECORDS // ROWS):
            producer.begin()
            if kind == "snapshot":
                read: SnapshotRows | EventRows = codec.snapshot(block, 0, len(block), SNAPSHOT)
                producer.send_all("rows", read.records, _HEADERS)  # type: ignore[arg-type]
            else:
                for each in images:
                    read = codec.inserts(each, 0, len(each), EVENT)
                    producer.send_all("rows", read.records, _HEADERS)  # type: ignore[arg-type]
            producer.commit()
        return tuple(now - then for now, then in zip(_spent(broker), start, strict=True))


def _spent(broker: KafkaBroker) -> tuple[float, ...]:
    own = time.thread_time()
    fields = Path(f"/proc/{broker.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return own, time.process_time() - own, (int(fields[11]) + int(fields[12])) * TICK_S


if __name__ == "__main__":
    main(sys.argv[1:])
