"""Asks the running producer to read the rows of some keys again, by a signal in its topic."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Final
from uuid import uuid4

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace.producer.app.signals import signal_settings
from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.errors import translate
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.topic_names import signal_topic
from tailrace.producer.verify.progress import ProducerProgress
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.verification import ChosenKeys

_SERVED_S: Final = 600.0


def repair(config: ProducerConfig, table: TableId, progress: ProducerProgress, keys: ChosenKeys) -> None:
    """Return when the producer has read the rows; without keys nothing happens.

    Raises KeysRefusedError if it has not read them: its log has the reason. Raises ConfigError if it does not read a
    topic of signals.
    """
    if "kafka" not in config.signals.channels:
        raise ConfigError(
            ["rows are read again by a signal in a topic: set signal.enabled.channels=kafka, and restart the producer"]
        )
    if not keys.texts:
        return
    progress.expect(keys)
    progress.barrier()  # other snapshots of the table would have its signal refused
    name = re.escape(str(table))
    body = {
        "id": f"verify-{uuid4()}",
        "type": "execute-snapshot",
        "data": {
            "data-collections": [name],
            "keys": {**asdict(keys), "database": table.database, "table": table.table},
        },
    }
    topic, reports = signal_topic(config), list[tuple[KafkaError | None, int | None]]()
    try:
        producer = Producer(signal_settings(config).announcer())
        producer.produce(
            topic,
            orjson.dumps(body),
            config.topics.prefix.encode(),
            partition=0,
            on_delivery=lambda error, sent: reports.append((error, sent.offset())),
        )
        producer.flush()
        [(error, offset)] = reports
        if error is not None:
            raise KafkaException(error)
    except KafkaException as failure:
        raise translate(failure, f"sending a signal to {topic}") from failure
    assert offset is not None, "an acknowledged record has an offset"
    progress.wait_until_served(offset, _SERVED_S)
