"""Builds a capture session: checks the source, restores the state, and connects the stream with the snapshots.

Nothing else constructs these objects. Nothing is written before all checks have passed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import structlog

from tailrace.producer.app import missing_topics, startup
from tailrace.producer.app.connection_settings import kafka_settings, mysql_source
from tailrace.producer.app.process import CaptureProcess
from tailrace.producer.app.resources import Resources
from tailrace.producer.app.resume import ResumePoint, ResumeRules, resume_point
from tailrace.producer.app.session import CaptureSession, SessionSnapshots, SessionStop
from tailrace.producer.app.signals import PositionMovedError, SignalService, ensure_signal_topics, tell_jump
from tailrace.producer.app.snapshot_factory import SnapshotFactory, WorkerFactory
from tailrace.producer.app.validation import check_source, faults_of_new_tables
from tailrace.producer.config import fingerprint
from tailrace.producer.errors import PrerequisiteError, TableAccessError
from tailrace.producer.kafka.moved_position import MOVED_KEY
from tailrace.producer.kafka.state_store import State, known_key_key
from tailrace.producer.kafka.topics import Topics
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer, stream_transactional_id
from tailrace.producer.model.protocols import ChangeStream, SnapshotSession, Source
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.headers import context_headers
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.signals.moves import Moves
from tailrace.producer.snapshot.incremental import IncrementalSnapshotRunner
from tailrace.producer.snapshot.reader import BARRIER_TIMEOUT_S
from tailrace.producer.streaming.auxiliary_topics import AuxiliaryTopics
from tailrace.producer.streaming.binlog_reader import BinlogReader, Handlers
from tailrace.producer.streaming.change_emitter import ChangeEmitter
from tailrace.producer.streaming.context import StreamContext, StreamSettings
from tailrace.producer.streaming.log_watch import LogWatch
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.new_tables import NewTables
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.refused_changes import RefusedChanges, table_fault
from tailrace.producer.streaming.replay import Replay
from tailrace.producer.streaming.schema_change_topic import SchemaChangeTopic
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stop_point import StopPoint
from tailrace.producer.streaming.stream_transaction import CommitSettings, PreparedTransactions, StreamTransaction
from tailrace.producer.streaming.table_lifecycle import TableLifecycle
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.producer.streaming.topics import CaptureTopics

log = structlog.get_logger(__name__)


@contextmanager
def open_session(process: CaptureProcess, *, resnapshot: bool) -> Iterator[CaptureSession]:
    """Build a session from the stored state, and close everything it opened.

    With ``resnapshot`` it requests an incremental snapshot of every table that has been captured before.
    Open Kafka transactions are not aborted: the next instance does that when it fences this one.
    """
    stop = threading.Event()
    try:
        with Resources() as resources:
            try:
                yield SessionBuilder(process, resources, SessionStop(process.stop, stop)).build(resnapshot=resnapshot)
            except PositionMovedError:
                process.status.moved()
                raise
            finally:
                stop.set()
    finally:
        process.status.disconnected()


@dataclass(frozen=True, slots=True)
class CheckedTables:
    """The captured tables, and why some of them, which were never captured before, cannot be."""

    captured: Sequence[TableId]
    faults: Mapping[TableId, str]


@dataclass(frozen=True, slots=True)
class Restored:
    """What startup restored."""

    captured: list[TableId]
    gone: list[TableId]
    """Captured tables that the source does not have any more; the stream has not reached their DROP."""
    state: State
    transaction: StreamTransaction
    registry: SplitRegistry
    schema_changes: SchemaChangeTopic | None


class SessionBuilder:
    """Builds one session; what it opens goes to ``resources``."""

    def __init__(self, process: CaptureProcess, resources: Resources, stop: SessionStop) -> None:
        self._process = process
        self._config = process.config
        self._kafka = replace(kafka_settings(process.config), batch_bytes=process.sizes.batch_bytes)
        self._source: Source = mysql_source(process.config)
        self._status = process.status
        self._resources = resources
        self._stop = stop
        self._auxiliary = AuxiliaryTopics(process.config)
        self._created_topics: set[str] = set()
        self._headers: Headers = list(
            context_headers(
                process.config.topics.prefix,
                run_id=process.ownership.own.run_id,
                connector=process.config.database.connector,
                enabled=process.config.values.context_headers,
            )
        )

    def build(self, *, resnapshot: bool) -> CaptureSession:
        config = self._config
        session = self._resources.add(self._source.open_snapshot_session())
        # Used by the stream's thread to look up what the binlog does not say about a table.
        tables = CapturedTables(
            config, session.describe, source_offset=session.current_offset, triggers=session.triggers
        )
        checked = self._check_tables(session, tables, self._source.list_tables(config.filters.tables.includes))
        process, stop_at = self._process, config.ops.stop_at
        if stop_at is not None and process.stops is None:
            process.stops = StopPoint.of(stop_at, self._source, session)
        topics = self._ensure_topics()
        restored = self._restore(checked.captured, topics, tables, session)
        # Tables that are gone come first: up to their DROP, which is ahead, their topics are theirs.
        captured = restored.captured
        owners = [*restored.gone, *(table for table in captured if table not in checked.faults)]
        faults = {**checked.faults, **tables.topics.own_all(owners)}
        with_topic = [table for table in captured if table not in faults]
        faults |= missing_topics.fail_without_topic(config, restored.transaction, restored.state, topics, with_topic)
        checked = CheckedTables(captured, faults)
        context, stream = self._open_stream(restored, tables)
        transaction = context.transaction
        tables.read_behind(lambda: session.wait_until_executed(transaction.offset.barrier(), BARRIER_TIMEOUT_S))
        self._status.connected(config.topics.prefix)
        if interval_ms := config.database.log_watch_interval_ms:
            monitor = self._source.open_log_monitor()
            self._resources.add(LogWatch(monitor, transaction, self._status, interval_s=interval_ms / 1000))
        pending = self._track_tables(restored, checked)
        moves = Moves(
            lambda text, epoch: self._source.earlier_offset(text, epoch=epoch), process.positions_tried, context.replay
        )
        signals = self._resources.add(
            SignalService(
                config, restored.state, transaction, context.registry, context.mailbox, source=self._source, moves=moves
            )
        )
        self._status.signals = signals.processor.as_status
        if resnapshot:
            known = restored.state.captured
            signals.processor.request_incremental(table for table in captured if str(table) in known)
        reads = config.snapshot.should_snapshot
        new_tables = NewTables(
            context, topics, signals.processor, self._source, reads=lambda t: reads(str(t)), held=process.held
        )
        new_tables.restore(request.table for request in signals.processor.queue.requests if request.required)
        versions = TableVersions(context, new_tables)
        coordinator = SnapshotCoordinator(context, versions, signals.processor)
        signal_table = signals.table()
        signalled = signal_table.id if signal_table is not None else None
        refused = RefusedChanges(context, versions, signals.processor, signalled)
        lifecycle = TableLifecycle(
            context, coordinator, restored.schema_changes, versions=versions, new_tables=new_tables, refused=refused
        )
        metadata = self._auxiliary.transaction_metadata(transaction)
        emitter = None
        if metadata is None and transaction.sender is not None:
            versions.emits = lambda table: table != signalled
            emitter = ChangeEmitter(context, versions)
        prepared = PreparedTransactions(transaction, restored.state.prepared.values(), settings=fingerprint(config))
        handlers = Handlers(metadata, signal_table, prepared, refused, emitter)
        reader = BinlogReader(context, stream, coordinator, versions, lifecycle=lifecycle, handlers=handlers)
        if process.stops is not None:
            reader.stop_at(process.stops)
        snapshots = self._restore_snapshots(restored.state, coordinator, signals, pending)
        signals.processor.initial_snapshot_started(pending, resumed=bool(restored.state.tables))
        return CaptureSession(reader, snapshots, signals, self._stop)

    def _check_tables(
        self, session: SnapshotSession, tables: CapturedTables, captured: Sequence[TableId]
    ) -> CheckedTables:
        """Check the source. Raises PrerequisiteError with every problem found.

        A table that was never captured before does not prevent a later start: it is in error.
        """
        config = self._config
        validation = check_source(config, self._source, session, tables, captured)
        for note in validation.notes:
            log.warning(note)
        if not validation.problems:
            return CheckedTables(validation.tables, {})
        known = startup.captured_before(self._kafka, self._source.read_offset, prefix=config.topics.prefix)
        if known is None:
            raise PrerequisiteError(validation.problems)
        faults = faults_of_new_tables(config, validation, captured, known)
        self._fail({table: error for table, error in validation.unreadable.items() if table not in faults})
        return CheckedTables(validation.tables, faults)

    def _fail(self, errors: Mapping[TableId, TableAccessError]) -> None:
        """Begin the session with tables in error that have been captured; raises if that stops the producer."""
        if errors and self._config.values.processing_failures == "fail":
            raise PrerequisiteError([f"{error.message}; {error.hint}" for error in errors.values()])
        for table, error in errors.items():
            self._process.failed[table] = table_fault(table, error, fingerprint(self._config))

    def _list_present(self, captured: Sequence[TableId]) -> list[TableId]:
        """Return the tables that exist now: behind a new offset, the stream says nothing of what happened before it."""
        listed = set(self._source.list_tables(self._config.filters.tables.includes))
        present, new = listed.intersection(captured), sorted(listed.difference(captured))
        if not new:
            return sorted(present)
        with closing(self._source.open_snapshot_session()) as session:
            checked = self._check_tables(session, CapturedTables(self._config, session.describe), new)
        return sorted([*present, *(table for table in checked.captured if table not in checked.faults)])

    def _ensure_topics(self) -> CaptureTopics:
        admin = Topics(self._kafka)
        topics = CaptureTopics(self._config, admin)
        self._created_topics = topics.ensure_own()
        ensure_signal_topics(self._config, admin)
        return topics

    def _restore(
        self, captured: Sequence[TableId], topics: CaptureTopics, tables: CapturedTables, session: SnapshotSession
    ) -> Restored:
        """Fence older instances and restore the state; what startup writes is one Kafka transaction."""
        config, prefix = self._config, self._config.topics.prefix
        kafka, readers = self._kafka, config.snapshot.max_threads
        stop, ownership = self._stop.requested, self._process.ownership
        producer = self._resources.add(TransactionalProducer(kafka, stream_transactional_id(prefix), stop))
        acquired = startup.acquire_state(
            kafka, producer, self._source.read_offset, ownership.announce, prefix=prefix, readers=readers
        )
        ownership.fence, state = acquired.fence, acquired.state
        new = state.offset is None
        epoch = missing_topics.first_epoch(config, topics, captured) if new else 0
        skipped = config.values.skipped_operations
        rules = ResumeRules(
            if_lost=config.snapshot.on_missing_binlog,
            wait_s=config.database.failover_wait_ms / 1000,
            uncounted="".join(sorted(skipped)),
            first_epoch=epoch,
            start_at=config.ops.start_at,
        )
        resume = resume_point(self._source, state, rules, self._process.stop)
        if new or resume.jumps:
            captured = self._list_present(captured)
            tables.refresh_stand_in_keys(session.describe_all, captured, session.current_offset())
        registry = SplitRegistry()
        action = self._auxiliary.heartbeat_action(self._source.open_catalog())
        if action is not None:
            self._resources.add(action)
        transaction = StreamTransaction(
            producer,
            StreamOffset(resume.offset, uncounted=rules.uncounted, has_unique_rows=tables.has_unique_rows),
            registry,
            settings=CommitSettings(
                prefix, config.batch.commit_interval_ms / 1000, config.batch.max_records, self._process.sizes.records
            ),
            status=self._status,
            heartbeat=self._auxiliary.heartbeat(action),
        )
        topic_of = TopicNames(config.topics).table
        self._begin(transaction, state, resume, captured)
        includes = config.filters.tables.includes
        gone = [] if new or resume.jumps else startup.gone_tables(state, captured, includes)
        hidden = startup.hidden_tables(session, startup.unlisted_tables(state, captured, includes))
        self._fail({table: error for table, error in hidden.items() if state.tables[str(table)].fault is None})
        captured, gone = [*captured, *hidden], [table for table in gone if table not in hidden]
        startup.fail_tables(transaction, state, self._process.failed, topic_of=topic_of)
        startup.keep_streaming(transaction, state, gone, topic_of=topic_of)
        kept = [*captured, *gone]
        startup.write_startup_state(transaction, state, readers=readers, captured=kept, topic_of=topic_of)
        startup.find_former_tables(transaction, state, topics, captured, reads=config.snapshot.should_snapshot)
        registry.former = state.former
        missing_topics.report_deleted_certificates(self._created_topics, state, prefix)
        # The topics of tables are created after this is committed: until then a start finds them missing.
        deleted = missing_topics.deleted_tables(topics.without_topic(captured), state, topic_of, config.topics.missing)
        if config.topics.missing == "snapshot":
            startup.request_snapshots(transaction, state, deleted)
        schema_changes = self._auxiliary.schema_changes(
            transaction, self._resources.add(self._source.open_catalog()), self._headers
        )
        if schema_changes is not None:
            schema_changes.write_definitions(captured, state.structure, resume.offset.position)
        tables.keys.load(state.keys)
        for name, value in tables.keys.take_unsaved():
            transaction.store(known_key_key(name), value)
        transaction.commit_with(resume.offset)
        for table in {*self._process.failed}.difference(kept):
            self._status.table_removed(table)
        self._process.failed.clear()
        return Restored(list(captured), gone, state, transaction, registry, schema_changes)

    def _begin(
        self, transaction: StreamTransaction, state: State, resume: ResumePoint, captured: Sequence[TableId]
    ) -> None:
        """Bring the state in line with the place where the stream begins."""
        if state.moved is not None:
            transaction.store(MOVED_KEY, None)
        if resume.jumps:
            tell_jump(self._config, transaction, state, resume)
            topic_of = TopicNames(self._config.topics).table
            reads = resume.reads or state.replay is not None
            startup.leave_binlog(transaction, state, captured=captured, topic_of=topic_of, reads=reads)
            startup.begin_replay(transaction, state, None if resume.lost else resume.offset.position)
        if resume.end is not None:
            startup.relocate_splits(transaction, state, resume.end)

    def _open_stream(self, restored: Restored, tables: CapturedTables) -> tuple[StreamContext, ChangeStream]:
        config = self._config
        filters, signals = config.filters.tables, config.signals.table
        if signals is not None:
            signals = self._source.stored_name(signals)
        prepared = startup.prepared_transactions(restored.state, fingerprint(config))
        wanted = filters.includes if signals is None else lambda table: table == signals or filters.includes(table)
        position, definitions = restored.transaction.offset.position, tables.keys.definitions()
        stream = self._resources.add(self._source.open_stream(position, wanted, prepared, definitions))
        settings = StreamSettings(
            config.topics.prefix,
            filters,
            self._headers,
            skipped_operations=config.values.skipped_operations,
            tombstones=config.values.tombstones,
            include_query=config.values.include_query,
            processing_failures=config.values.processing_failures,
            fingerprint=fingerprint(config),
            reads_after_alter=config.snapshot.after_alter,
            max_waiting_splits=config.snapshot.max_waiting_splits,
            max_hold_s=config.snapshot.max_hold_ms / 1000,
        )
        mailbox = Mailbox(stream.wake, self._stop.session)
        context = StreamContext(
            settings,
            restored.transaction,
            restored.registry,
            tables,
            mailbox,
            self._status,
            Replay(restored.state.replay),
        )
        return context, stream

    def _track_tables(self, restored: Restored, checked: CheckedTables) -> list[TableId]:
        """Track every captured table before the first event; return those whose initial snapshot is not complete."""
        stored = restored.state.tables
        pending: list[TableId] = []
        for table in checked.captured:
            known = stored.get(str(table))
            fault = known.fault if known is not None else None
            if table in checked.faults or (known is not None and fault is not None and known.mode is TableMode.ERROR):
                self._track_faulty(restored, table, checked.faults.get(table), fault)
                continue
            if known is not None and known.mode is TableMode.ERROR:
                known = None  # nothing of it is in Kafka
            needless = known is None and not self._config.snapshot.should_snapshot(str(table))
            if needless or (known is not None and known.mode is not TableMode.SNAPSHOT):
                mode = TableMode.STREAMING
            else:
                mode = TableMode.WAITING
                pending.append(table)
            restored.registry.track(table, mode).fault = fault
            self._status.table_mode(table, mode)
        for table in restored.gone:
            log.info("a table is gone: its changes are written up to its DROP", table=str(table))
            restored.registry.track(table, TableMode.STREAMING).fault = stored[str(table)].fault
            self._status.table_mode(table, TableMode.STREAMING)
        # Started plans come first: the stream knows their splits, and the state holds them.
        return sorted(pending, key=lambda table: str(table) not in stored)

    def _track_faulty(self, restored: Restored, table: TableId, reason: str | None, fault: TableFault | None) -> None:
        restored.registry.track(table, TableMode.ERROR).fault = fault
        reason = reason or (fault.reason if fault is not None else "")
        if self._status.table_failed(table, reason, fault.at if fault is not None else None):
            log.error("a table is not captured: its changes are skipped", table=str(table), error=reason)

    def _restore_snapshots(
        self, state: State, coordinator: SnapshotCoordinator, signals: SignalService, pending: Sequence[TableId]
    ) -> SessionSnapshots:
        process, fence = self._process, self._process.ownership.fence
        assert fence is not None, "the state is restored before it was acquired"
        workers = WorkerFactory(
            process.config, self._kafka, fence, coordinator, hooks=process.hooks, server=process.fork_server
        )
        factory = SnapshotFactory(
            process.config, state, coordinator, signals.processor, status=process.status, workers=workers
        )
        incremental = self._resources.add(IncrementalSnapshotRunner(coordinator, signals.processor, factory))
        incremental.restore()
        initial = None
        if pending:
            initial = self._resources.add(factory.initial(pending))
            initial.restore()
        stop_after_initial = process.config.snapshot.stop_after_snapshot
        return SessionSnapshots(initial, incremental, factory, stop_after_initial=stop_after_initial)
