"""Builds enumerators with their own database sessions, and the workers that read splits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection as Pipe

import structlog

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.app.snapshot_worker import open_reader, process_main
from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.generation import GenerationFence
from tailrace.producer.kafka.state_store import State
from tailrace.producer.model.table import TableId
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.snapshot.enumerator import Enumerator
from tailrace.producer.snapshot.fork_server import ForkServer, ForkServerLostError, may_fork
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.producer.snapshot.pace import Pace
from tailrace.producer.snapshot.policy import IncrementalSnapshot, InitialSnapshot, SnapshotControl, SnapshotPolicy
from tailrace.producer.snapshot.splitter import SplitterSettings
from tailrace.producer.snapshot.table_planner import TablePlanner
from tailrace.producer.snapshot.workers import Process, ProcessWorkers, SpawnedProcess, ThreadWorkers, Workers
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator

log = structlog.get_logger(__name__)


def fork_server(config: ProducerConfig) -> ForkServer | None:
    """Return a process that forks snapshot readers, if this one may fork; the caller closes it."""
    return ForkServer(partial(process_main, config)) if may_fork() else None


def new_workers(config: ProducerConfig, server: ForkServer | None) -> ProcessWorkers:
    """Return the configured number of snapshot readers, which wait for ``begin``; the caller closes them."""

    def start(worker: int, pipe: Pipe) -> Process:
        if server is not None:
            try:
                return server.start(worker, pipe)
            except ForkServerLostError as error:
                log.warning("a snapshot reader imports what it needs", reason=str(error))
        return SpawnedProcess(partial(process_main, config), worker, pipe)

    return ProcessWorkers(config.snapshot.max_threads, start)


class WorkerFactory:
    """Starts snapshot readers: processes, or threads if hooks of a test must be called."""

    def __init__(
        self,
        config: ProducerConfig,
        kafka: KafkaSettings,
        fence: GenerationFence,
        coordinator: SnapshotCoordinator,
        *,
        hooks: SnapshotHooks | None = None,
        server: ForkServer | None = None,
    ) -> None:
        """``kafka`` is the connection of this session. ``server`` forks the processes."""
        self._config = config
        self._kafka = kafka
        self._fence = fence
        self._coordinator = coordinator
        self._hooks = hooks
        self._server = server

    def start(self) -> Workers:
        """Start the configured number of readers; the caller closes them."""
        config, kafka, stream = self._config, self._kafka, self._coordinator
        # A session may be old when an incremental snapshot starts: its readers need not read the state since then.
        fence = self._fence = self._fence.moved_to_end(kafka, lambda: stream.mailbox.call(stream.confirm_ownership))
        keys = stream.known_keys()
        if self._hooks is None:
            workers = new_workers(config, self._server)
            workers.begin(kafka, fence, keys)
            return workers
        readers = range(config.snapshot.max_threads)
        opener = partial(open_reader, config, kafka, fence, keys, hooks=self._hooks)
        return ThreadWorkers([partial(opener, worker=each) for each in readers])


class SnapshotFactory:
    """Builds enumerators; the caller closes them."""

    def __init__(
        self,
        config: ProducerConfig,
        state: State,
        coordinator: SnapshotCoordinator,
        control: SnapshotControl,
        *,
        status: Status,
        workers: WorkerFactory,
    ) -> None:
        """``state`` is the one that was restored at startup."""
        self._config = config
        self._state = state
        self._coordinator = coordinator
        self._control = control
        self._status = status
        self._workers = workers
        limits = config.snapshot
        self._pace = Pace(limits.max_rows_per_s, limits.max_bytes_per_s, split_rows=limits.chunk_size)

    def initial(self, tables: Sequence[TableId]) -> Enumerator:
        planner = self._planner()
        return self._enumerator(planner, InitialSnapshot(planner, self._coordinator), tables)

    def incremental(self, tables: Sequence[TableId]) -> Enumerator:
        planner = self._planner()
        return self._enumerator(planner, IncrementalSnapshot(planner, self._coordinator, self._control), tables)

    def _enumerator(self, planner: TablePlanner, policy: SnapshotPolicy, tables: Sequence[TableId]) -> Enumerator:
        enumerator = Enumerator(planner, self._coordinator, policy, tables, state=self._state, status=self._status)
        enumerator.pace = self._pace
        return enumerator

    def start_workers(self) -> Workers:
        """Start the snapshot readers; the caller closes them."""
        return self._workers.start()

    def _planner(self) -> TablePlanner:
        config = self._config
        source = mysql_source(config)
        session = source.open_snapshot_session()
        try:
            stream_session = source.open_snapshot_session()
        except BaseException:
            session.close()
            raise
        snapshot = config.snapshot
        settings = SplitterSettings(
            snapshot.chunk_size, snapshot.max_split_bytes, snapshot.even_upper, snapshot.even_lower
        )
        return TablePlanner(session, stream_session, CapturedTables(config, session.describe), settings)
