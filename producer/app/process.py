"""What the sessions of one process share: what one of them has learned, the next one knows."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tailrace.producer.app.ownership import Ownership
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import RefusedChange
from tailrace.producer.kafka.delivery import RefusedSizes
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault
from tailrace.producer.ops.status import Status
from tailrace.producer.snapshot.fork_server import ForkServer
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.producer.streaming.stop_point import StopPoint


@dataclass(slots=True)
class CaptureProcess:
    """What all sessions of a process share."""

    config: ProducerConfig
    stop: threading.Event
    status: Status
    ownership: Ownership
    hooks: SnapshotHooks | None = None
    """For tests: snapshot readers then run as threads of this process."""
    fork_server: ForkServer | None = None
    failed: dict[TableId, TableFault] = field(default_factory=dict)
    """Tables that ended the last session: the next one begins with them in error."""
    held: dict[TableId, RefusedChange] = field(default_factory=dict)
    """What Kafka has refused while this process runs; see ``NewTables``."""
    sizes: RefusedSizes = field(default_factory=RefusedSizes)
    positions_tried: dict[str, int] = field(default_factory=dict)
    """See ``Moves``."""
    stops: StopPoint | None = None
    """Where it ends by itself: the end of the log at its start does not move with the next session."""
