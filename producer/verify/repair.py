"""Asks the running producer to read the rows of some keys again, by a signal in its topic."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Final
from uuid import uuid4

import orjson

from tailrace.producer.app.signals import signal_settings
from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.client import write_outside_transaction
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
    topic, key = signal_topic(config), config.topics.prefix.encode()
    offset = write_outside_transaction(
        signal_settings(config), topic, key, orjson.dumps(body), f"sending a signal to {topic}"
    )
    progress.wait_until_served(offset, _SERVED_S)
