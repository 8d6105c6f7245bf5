"""Runs the capture, session after session.

There is one recovery procedure: after a failure everything is closed, and a new session starts from the state in Kafka,
as after a crash.
"""

from __future__ import annotations

import threading

import structlog
from tenacity import Retrying, retry_if_exception, stop_when_event_set, wait_random_exponential
from tenacity.nap import sleep_using_event

from tailrace.producer.app.builder import open_session
from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.app.ownership import Ownership
from tailrace.producer.app.process import CaptureProcess
from tailrace.producer.app.signals import PositionMovedError
from tailrace.producer.config import ProducerConfig, fingerprint
from tailrace.producer.errors import ProducerFencedError, TableFailedError
from tailrace.producer.kafka import native_sender
from tailrace.producer.kafka.client import check_options
from tailrace.producer.native import loader
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.envelope.topic_names import reserved_topics
from tailrace.producer.snapshot.fork_server import ForkServer
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.producer.streaming.refused_changes import table_fault
from tailrace.runtime.errors import Retryable, TailraceError
from tailrace.runtime.exit_code import ExitCode
from tailrace.runtime.webhook import Webhook, WebhookEvent

log = structlog.get_logger(__name__)


def run(
    config: ProducerConfig,
    stop: threading.Event,
    *,
    status: Status | None = None,
    hooks: SnapshotHooks | None = None,
    fork_server: ForkServer | None = None,
) -> None:
    """Capture until ``stop`` is set, or until the initial snapshot is complete with snapshot.mode=initial_only.

    If the first session cannot start, the error is raised at once. Later, retryable errors start a new session after
    growing delays. ``hooks`` are for tests: snapshot readers then run as threads of this process. ``fork_server``
    starts the processes of snapshot readers; without one they are spawned, and each imports what it needs.
    """
    status = status if status is not None else Status()
    with _webhook(config) as status.webhook:
        try:
            _run_sessions(config, stop, status, hooks, fork_server)
        except Exception as error:
            reason, remedy = (error.message, error.hint) if isinstance(error, TailraceError) else ("see the log", "")
            event = WebhookEvent(config.topics.prefix, f"Stopped {type(error).__name__}", "", reason, remedy)
            status.webhook.post(event)
            raise


def _webhook(config: ProducerConfig) -> Webhook:
    notifications = config.notifications
    if "webhook" not in notifications.channels or notifications.webhook_url is None:
        return Webhook()
    return Webhook(notifications.webhook_url.get_secret_value(), notifications.webhook_format)


def _run_sessions(
    config: ProducerConfig,
    stop: threading.Event,
    status: Status,
    hooks: SnapshotHooks | None,
    fork_server: ForkServer | None,
) -> None:
    check_options(kafka_settings(config))
    if reason := loader.unused_because():
        log.info("rows are encoded by Python alone", reason=f"the compiled extension is not used: {reason}")
    else:
        log.info("rows are encoded by the compiled extension")
        if reason := native_sender.unused_because():
            log.info("records are sent by Kafka's Python binding", reason=reason)
        else:
            log.info("records are sent by the compiled extension")
    ownership = Ownership(config, stop, status)
    process = CaptureProcess(config, stop, status, ownership, hooks, fork_server)
    started = threading.Event()

    def may_retry(error: BaseException) -> bool:
        # Fenced before it started, and not replaced: by an older instance, which ends when this one fences it again.
        may = started.is_set() or isinstance(error, ProducerFencedError | TableFailedError)
        # A record that is no row, or a batch: a session that knows the size goes on.
        learned = process.sizes.learn(error, reserved_topics(config))
        retry = ((isinstance(error, Retryable) and may) or learned) and not stop.is_set()
        if retry and isinstance(error, TableFailedError):
            fault = process.failed[error.table] = table_fault(error.table, error.fault, fingerprint(config))
            if error.refused is not None:
                process.held[error.table] = error.refused
            status.table_failed(error.table, fault.reason, fault.at)
        elif retry and isinstance(error, PositionMovedError):
            log.info("a new session begins where a signal has set the stream")
        elif retry and isinstance(error, TailraceError):
            log.warning("restarting from the stored state", error=error)
            status.failed(error)
        return retry

    try:
        for attempt in Retrying(
            retry=retry_if_exception(may_retry),
            stop=stop_when_event_set(stop),
            wait=wait_random_exponential(multiplier=0.3, max=10),
            sleep=sleep_using_event(stop),
            reraise=True,
        ):
            resnapshot = config.snapshot.resnapshot_on_start and not started.is_set()
            with attempt, ownership.naming_the_winner(), open_session(process, resnapshot=resnapshot) as session:
                started.set()
                session.run()
    except TailraceError as error:
        if not (isinstance(error, Retryable) and stop.is_set()):
            if started.is_set() and error.exit_code is ExitCode.CONFIG:
                # It has run with this configuration: what a server or a file is now can pass, and a restart goes on.
                error.exit_code = ExitCode.ERROR
            raise
        log.warning("stopped without a last commit: the next start reads again what is missing", error=error)
