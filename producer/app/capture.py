"""Runs the capture, session after session.

There is one recovery procedure: after a failure everything is closed, and a new session starts from the state in Kafka,
as after a crash.
"""

from __future__ import annotations

import threading
import uuid

import structlog
from tenacity import Retrying, retry_if_exception, stop_when_event_set, wait_random_exponential
from tenacity.nap import sleep_using_event

from tailrace.producer.app.builder import CaptureProcess, open_session
from tailrace.producer.config import ProducerConfig
from tailrace.producer.ops.status import Status
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.runtime.errors import Retryable

log = structlog.get_logger(__name__)


def run(
    config: ProducerConfig,
    stop: threading.Event,
    *,
    status: Status | None = None,
    hooks: SnapshotHooks | None = None,
) -> None:
    """Capture until ``stop`` is set, or until the initial snapshot is complete with snapshot.mode=initial_only.

    If the first session cannot start, the error is raised at once. Later, retryable errors start a new session after
    growing delays. ``hooks`` are for tests: snapshot readers then run as threads of this process.
    """
    status = status if status is not None else Status()
    process = CaptureProcess(config, stop, status, str(uuid.uuid4()), hooks)
    started = threading.Event()

    def may_retry(error: BaseException) -> bool:
        retry = isinstance(error, Retryable) and started.is_set() and not stop.is_set()
        if retry:
            log.warning("restarting from the stored state", error=str(error))
            status.failed(str(error))
        return retry

    for attempt in Retrying(
        retry=retry_if_exception(may_retry),
        stop=stop_when_event_set(stop),
        wait=wait_random_exponential(multiplier=0.3, max=10),
        sleep=sleep_using_event(stop),
        reraise=True,
    ):
        resnapshot = config.snapshot.resnapshot_on_start and not started.is_set()
        with attempt, open_session(process, resnapshot=resnapshot) as session:
            started.set()
            session.run()
