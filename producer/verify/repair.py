"""Asks the running producer to read the rows of some keys again, by a signal in its topic."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Final

from tailrace.producer.app.signals import require_signal_topic, send_signal
from tailrace.producer.config import ProducerConfig
from tailrace.producer.model.table import TableId
from tailrace.producer.verify.progress import ProducerProgress
from tailrace.schemas.verification import ChosenKeys

_SERVED_S: Final = 600.0


def repair(config: ProducerConfig, table: TableId, progress: ProducerProgress, keys: ChosenKeys) -> None:
    """Return when the producer has read the rows; without keys nothing happens.

    Raises KeysRefusedError if it has not read them: its log has the reason. Raises ConfigError if it does not read a
    topic of signals.
    """
    require_signal_topic(config)
    if not keys.texts:
        return
    progress.expect(keys)
    progress.barrier()  # other snapshots of the table would have its signal refused
    data = {
        "data-collections": [re.escape(str(table))],
        "keys": {**asdict(keys), "database": table.database, "table": table.table},
    }
    progress.wait_until_served(send_signal(config, "execute-snapshot", data).offset, _SERVED_S)
