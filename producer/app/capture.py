"""Runs the capture, session after session.

There is one recovery procedure: after a failure everything is closed, and a new session starts from the state in Kafka,
as after a crash.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

import structlog
from tenacity import Retrying, retry_if_exception, stop_when_event_set, wait_random_exponential
from tenacity.nap import sleep_using_event

from tailrace.producer.app.builder import CaptureProcess, open_session
from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import ProducerFencedError
from tailrace.producer.kafka.client import check_options
from tailrace.producer.ops.status import Status
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.runtime.errors import KafkaRequestError, Retryable, TailraceError

log = structlog.get_logger(__name__)

_RIVAL_WITHIN_S: Final = 600.0
"""A producer that is fenced a second time within this time has a rival; pauses of a machine are rarer."""


class FencingHistory:
    """Distinguishes a rival from a broker that has ended a transaction by its timeout; both fence the client.

    A restart fences the rival, whose restart fences this producer again. The one that started first gives up first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def repeated(self) -> bool:
        """Note that the producer is fenced; return whether it was fenced shortly before."""
        now, last = self._clock(), self._last
        self._last = now
        return last is not None and now - last < _RIVAL_WITHIN_S


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
    check_options(kafka_settings(config))
    status = status if status is not None else Status()
    process = CaptureProcess(config, stop, status, str(uuid.uuid4()), hooks)
    started = threading.Event()
    fencing = FencingHistory()

    def may_retry(error: BaseException) -> bool:
        retry = isinstance(error, Retryable) and started.is_set() and not stop.is_set()
        if isinstance(error, ProducerFencedError):
            retry = retry and not fencing.repeated()
        if retry:
            log.warning("restarting from the stored state", error=str(error))
            # Without the context: a statement contains keys, and the status needs no password.
            status.failed(str(error).partition("\n")[0])
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
            with attempt, open_session(process, resnapshot=resnapshot) as session:
                started.set()
                session.run()
    except TailraceError as error:
        if not isinstance(error, Retryable):
            raise
        if stop.is_set():
            log.warning("stopped without a last commit: the next start reads again what is missing", error=str(error))
        elif isinstance(error, ProducerFencedError) and started.is_set():
            raise _taken_over(error) from error
        else:
            raise


def _taken_over(error: ProducerFencedError) -> KafkaRequestError:
    return KafkaRequestError(
        "another producer with this topic.prefix has taken over",
        hint="run one producer for one topic.prefix: find the other one and stop it, or leave this one stopped",
        **error.context,
    )
