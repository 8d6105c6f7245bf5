"""The producer: builds its parts, owns start, recovery and stop. Nothing else constructs.

There is one way to recover: whatever broke, everything is closed and started again from the state in Kafka, just as
after a crash.
"""

from __future__ import annotations

import threading
import uuid
from functools import partial

import structlog
from pymysql.connections import Connection
from tenacity import Retrying, retry_if_exception, stop_when_event_set, wait_random_exponential
from tenacity.nap import sleep_using_event

from tailrace.producer.app.connection_settings import kafka_settings, source_settings
from tailrace.producer.app.signals import SignalService, ensure_signal_topics
from tailrace.producer.app.snapshot_worker import open_reader, process_main
from tailrace.producer.app.startup import acquire_and_restore
from tailrace.producer.app.validation import validate_tables
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import PrerequisiteError
from tailrace.producer.kafka.topics import COMPACTED, Topics, TopicSpec
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.stream import BinlogStream
from tailrace.producer.mysql.catalog import list_tables, read_table
from tailrace.producer.mysql.connection import connect, query
from tailrace.producer.mysql.key_order import QueryServer
from tailrace.producer.mysql.offset import mysql_offset
from tailrace.producer.mysql.prerequisites import check
from tailrace.producer.mysql.reconnecting import ReconnectingSession
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.headers import context_headers
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.snapshot.enumerator import CaptureStoppedError, Enumerator
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.producer.snapshot.incremental import IncrementalEnumerator, IncrementalSnapshotRunner
from tailrace.producer.snapshot.split_registry import Phase, SplitRegistry
from tailrace.producer.snapshot.splitter import SplitterSettings
from tailrace.producer.snapshot.workers import ProcessWorkers, ThreadWorkers, Workers
from tailrace.producer.streaming.auxiliary_topics import AuxiliaryTopics, open_auxiliary_topics, schema_changes
from tailrace.producer.streaming.auxiliary_topics import topics as companion_topics
from tailrace.producer.streaming.binlog_reader import BinlogReader, StoppedError, StreamSettings
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.runtime.errors import Retryable
from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic

log = structlog.get_logger(__name__)


def run(
    config: ProducerConfig,
    stop: threading.Event,
    *,
    status: Status | None = None,
    hooks: SnapshotHooks | None = None,
) -> None:
    """Capture until ``stop`` is set, or the snapshot is done with snapshot.mode=initial_only.

    A first start that fails is an error at once; after that, what a restart may cure is tried again with growing waits.
    ``hooks`` are for tests: readers then run as threads of this process.
    """
    status = status if status is not None else Status()
    capture = Capture(config, stop, status, hooks)
    started = threading.Event()

    def incremental(error: BaseException) -> bool:
        retry = isinstance(error, Retryable) and started.is_set() and not stop.is_set()
        if retry:
            log.warning("starting again from the stored state", error=str(error))
            status.failed(str(error))
        return retry

    for attempt in Retrying(
        retry=retry_if_exception(incremental),
        stop=stop_when_event_set(stop),
        wait=wait_random_exponential(multiplier=0.3, max=10),
        sleep=sleep_using_event(stop),
        reraise=True,
    ):
        with attempt:
            try:
                capture.open()
                started.set()
                capture.run()
            finally:
                capture.close()


class Capture:
    """One life of the capture, from the stored state to the next stop or failure."""

    def __init__(
        self, config: ProducerConfig, stop: threading.Event, status: Status, hooks: SnapshotHooks | None
    ) -> None:
        self._config = config
        self._stop = stop
        self._status = status
        self._hooks = hooks
        self._run_id = str(uuid.uuid4())
        self._closing: list[
            Connection
            | TransactionalProducer
            | BinlogStream
            | Workers
            | AuxiliaryTopics
            | ReconnectingSession
            | SignalService
        ] = []
        self._first_life = True
        self._incremental_sessions: dict[int, tuple[Connection, Connection]] = {}
        self._headers: Headers = list(
            context_headers(config.topics.prefix, run_id=self._run_id, enabled=config.values.context_headers)
        )
        self._names = TopicNames(config.topics)

    def open(self) -> None:
        """Check everything and take over; nothing is written before all checks have passed."""
        config, prefix = self._config, self._config.topics.prefix
        self._over = threading.Event()
        self._session = self._connect()
        wanted = config.filters.tables.includes
        captured = list_tables(self._session, wanted)
        for note in check(self._session, captured, server_id=config.database.server_id):
            log.warning(note)
        tables = CapturedTables(config, partial(read_table, self._connect()))
        asked = validate_tables(config, tables, captured, partial(read_table, self._session))
        for note in asked.notes:
            log.warning(note)
        if asked.faults:
            raise PrerequisiteError(asked.faults)
        kafka = kafka_settings(config)
        self._topics = Topics(kafka)
        self._topics.ensure(
            TopicSpec(name, config=policy, exact_partitions=True, replication_factor=config.topics.replication_factor)
            for name, policy in (
                (state_topic(prefix), COMPACTED),
                (schemas_topic(prefix), COMPACTED),
                (watermarks_topic(prefix), {}),
            )
        )
        self._topics.ensure(companion_topics(config, self._names))
        ensure_signal_topics(config, self._topics)
        self._ensure_topics(captured)
        self._worker_count = config.snapshot.max_threads
        definitions = ReconnectingSession(self._dial)
        self._closing.append(definitions)
        changes = schema_changes(config, self._names, definitions, self._headers)
        start = acquire_and_restore(
            kafka,
            self._session,
            prefix=prefix,
            workers=self._worker_count,
            captured=captured,
            renew=config.snapshot.resnapshot_on_missing_binlog,
            beside=None
            if changes is None
            else lambda publisher, state, at: changes.structure(publisher, captured, state.structure, at),
        )
        self._closing.append(start.publisher)
        self._state = start.state
        place = StreamOffset(start.log)
        parts = open_auxiliary_topics(
            config, self._names, start.publisher, place, connect=self._dial, schema_changes=changes
        )
        self._closing.append(parts)
        self._build(tables, captured, start.publisher, place, parts)

    def _build(
        self,
        tables: CapturedTables,
        captured: list[TableId],
        publisher: TransactionalProducer,
        place: StreamOffset,
        parts: AuxiliaryTopics,
    ) -> None:
        config, prefix = self._config, self._config.topics.prefix
        wanted, signals = config.filters.tables.includes, config.signals.table
        stream = BinlogStream(
            source_settings(config),
            start=mysql_offset(place.position).gtids,
            server_id=config.database.server_id,
            wanted=wanted if signals is None else lambda table: table == signals or wanted(table),
        )
        self._closing.append(stream)
        stream.open()
        registry = SplitRegistry()
        self._log_reader = BinlogReader(
            stream,
            publisher,
            tables=tables,
            registry=registry,
            place=place,
            settings=StreamSettings(
                prefix,
                commit_interval_s=config.batch.commit_interval_ms / 1000,
                max_records=config.batch.max_records,
                skipped_operations=config.values.skipped_operations,
                tombstones=config.values.tombstones,
                include_query=config.values.include_query,
            ),
            context_headers=self._headers,
            ensure_topic=lambda table: self._ensure_topics([table]),
            wanted=config.filters.tables.includes,
            companions=parts,
            status=self._status,
            stop=self._over,
        )
        self._status.connected(prefix)
        self._status.log_committed(place.position.to_json())
        self._todo = self._track(registry, captured)
        self._asking = SignalService(config, self._state, registry, publisher, self._log_reader)
        self._closing.append(self._asking)
        if config.snapshot.resnapshot_on_start and self._first_life:
            self._asking.desk.request_incremental(table for table in captured if str(table) in self._state.tables)
        self._incremental = IncrementalSnapshotRunner(
            self._asking.desk, self._new_incremental, self._start_workers, self._release_incremental, over=self._over
        )
        self._incremental.restore()
        self._enumerator: Enumerator | None = None
        if self._todo:
            self._enumerator = self._new_enumerator()
            self._enumerator.restore()
        self._asking.desk.initial(self._todo, begun=bool(self._state.tables))
        self._first_life = False

    def _track(self, registry: SplitRegistry, captured: list[TableId]) -> list[TableId]:
        """Make every captured table known before the first event; return those with a snapshot to take or finish."""
        stored = self._state.tables
        todo: list[TableId] = []
        for table in captured:
            known = stored.get(str(table))
            needless = known is None and not self._config.snapshot.should_snapshot(str(table))
            if needless or (known is not None and known.phase in {"log", "incremental"}):
                registry.track(table, Phase.LOG)
                self._status.table_finished(table)
            else:
                registry.track(table, Phase.WAITING)
                todo.append(table)
        for table in todo:
            self._status.table_waiting(table)
        # Plans under way come first: their splits are known to the log reader and held in the state.
        return sorted(todo, key=lambda table: str(table) not in stored)

    def _new_enumerator(self) -> Enumerator:
        config = self._config
        session = self._connect()
        return Enumerator(
            session,
            self._log_reader,
            CapturedTables(config, partial(read_table, session)),
            self._state,
            self._todo,
            settings=SplitterSettings(
                config.snapshot.chunk_size, config.snapshot.even_upper, config.snapshot.even_lower
            ),
            status=self._status,
            stop=self._over,
            log_asks=self._asker(),
        )

    def _asker(self) -> QueryServer:
        """Return a way to ask the server from the log reader's thread, over a session of its own."""
        session = self._connect()
        return lambda sql: query(session, sql)[0]

    def _new_incremental(self, todo: list[TableId]) -> IncrementalEnumerator:
        config, sessions = self._config, (self._connect(), self._connect())
        enumerator = IncrementalEnumerator(
            sessions[0],
            self._log_reader,
            CapturedTables(config, partial(read_table, sessions[0])),
            self._state,
            todo,
            settings=SplitterSettings(
                config.snapshot.chunk_size, config.snapshot.even_upper, config.snapshot.even_lower
            ),
            status=self._status,
            stop=self._over,
            log_asks=lambda sql: query(sessions[1], sql)[0],
            guide=self._asking.desk,
        )
        self._incremental_sessions[id(enumerator)] = sessions
        return enumerator

    def _release_incremental(self, enumerator: IncrementalEnumerator) -> None:
        for session in self._incremental_sessions.pop(id(enumerator)):
            self._closing.remove(session)
            session.close()

    def run(self) -> None:
        """Run until stopped, or until log reader or snapshot failed."""
        watcher = threading.Thread(target=self._pass_stop_on, name="stop-watch", daemon=True)
        watcher.start()
        self._log_reader.stop_when_ended = self._config.snapshot.stop_after_snapshot and self._enumerator is None
        failure: list[BaseException] = []
        snapshot = threading.Thread(target=self._snapshot, args=(failure,), name="enumerator", daemon=True)
        snapshot.start()
        self._asking.start()
        try:
            self._log_reader.run()
        except StoppedError:
            log.debug("stopped while a change was held")
        finally:
            self._over.set()
            if snapshot.is_alive():
                snapshot.join(timeout=60)
        if failure:
            raise failure[0]

    def _snapshot(self, failure: list[BaseException]) -> None:
        try:
            if self._enumerator is not None:
                workers = self._start_workers()
                try:
                    self._enumerator.run(workers)
                finally:
                    workers.close()
                log.info("every split is read")
            if self._config.snapshot.stop_after_snapshot:
                self._log_reader.stop_when_ended = True
                return
            self._incremental.run()
        except CaptureStoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the thread that owns the capture
            failure.append(error)
            self._over.set()
            self._log_reader.wake()

    def _start_workers(self) -> Workers:
        config, run_id = self._config, self._run_id
        if self._hooks is not None:
            readers = range(self._worker_count)
            return ThreadWorkers(
                [partial(open_reader, config, run_id, worker, hooks=self._hooks) for worker in readers]
            )
        return ProcessWorkers(self._worker_count, partial(process_main, config, run_id))

    def _pass_stop_on(self) -> None:
        while not self._over.wait(0.1):
            if self._stop.is_set():
                self._over.set()
                self._log_reader.wake()

    def _ensure_topics(self, captured: list[TableId]) -> None:
        topics = self._config.topics
        self._topics.ensure(
            TopicSpec(
                self._names.table(table),
                partitions=topics.partitions,
                replication_factor=topics.replication_factor,
                config=topics.settings,
            )
            for table in captured
        )

    def _connect(self) -> Connection:
        session = self._dial()
        self._closing.append(session)
        return session

    def _dial(self) -> Connection:
        """Open a session that whoever asked for it closes."""
        session = connect(source_settings(self._config))
        for statement in self._config.database.initial_statements:
            query(session, statement)
        return session

    def close(self) -> None:
        """Let everything go; what was not committed is aborted by whoever takes over."""
        if hasattr(self, "_over"):
            self._over.set()
        while self._closing:
            part = self._closing.pop()
            try:
                part.close()
            except Exception as error:  # noqa: BLE001 - a broken connection may refuse to close; nothing depends on it
                log.debug("closing failed", part=type(part).__name__, error=str(error))
        self._status.disconnected()
