"""A distributed Kafka Connect worker: it keeps offsets, configurations and states in topics, as in production."""

from __future__ import annotations

import contextlib
import urllib.error
from collections.abc import Mapping
from typing import Any

from tests.debezium_parity.connect import ConnectWorker
from tests.embedded import supervised


class DistributedWorker(ConnectWorker):
    """The only worker of its group. ``group`` is the prefix of its topics."""

    main = "org.apache.kafka.connect.cli.ConnectDistributed"

    def __init__(self, bootstrap: str, group: str) -> None:
        super().__init__(bootstrap)
        self.group = group
        self.offset_topic = f"{group}-offsets"
        self.status_topic = f"{group}-status"

    def storage(self) -> Mapping[str, object]:
        """Return the storage settings of the worker."""
        return {
            "group.id": self.group,
            "offset.storage.topic": self.offset_topic,
            "offset.storage.partitions": 5,
            "config.storage.topic": f"{self.group}-configs",
            "status.storage.topic": self.status_topic,
            **dict.fromkeys((f"{what}.storage.replication.factor" for what in ("offset", "config", "status")), 1),
        }

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Start a connector. Wait until the group is balanced and reports it."""

        def known() -> bool:
            with contextlib.suppress(urllib.error.HTTPError):  # 409: the group is rebalancing
                ConnectWorker.put(self, name, config)
                return name in self._request("GET", "/connectors?expand=status")
            return False

        supervised.wait_until(known, what=f"the status of {name}", deadline_s=300, pause_s=0.5)

    def stop_connector(self, name: str) -> None:
        """Stop a connector. Wait until its tasks have ended; their offsets are flushed then."""
        self._request("PUT", f"/connectors/{name}/stop")
        supervised.wait_until(lambda: self._is_stopped(name), what=f"the end of {name}", deadline_s=300, pause_s=0.2)

    def resume(self, name: str) -> None:
        """Resume a stopped connector from its offset."""
        self._request("PUT", f"/connectors/{name}/resume")

    def _is_stopped(self, name: str) -> bool:
        status: Any = self._request("GET", f"/connectors/{name}/status")
        return status["connector"]["state"] == "STOPPED" and not status["tasks"]
