"""The commands that send a signal: they wait until the running producer has taken it, and say what it made of it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tailrace.producer.app.signals import SentSignal, require_signal_topic, send_signal
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import ResponseUnknownError, SignalRefusedError
from tailrace.producer.model.table import TableId
from tailrace.runtime.errors import ConfigError, NoAnswerError

_LEAST_WAIT_S: Final = 60.0
_POLLS: Final = 4
"""A signal is taken within so many intervals of its channel."""
_POLL_S: Final = 0.2


def snapshot_data(config: ProducerConfig, tables: Sequence[str], where: str | None) -> dict[str, Any]:
    """Return the data of execute-snapshot. Raises ConfigError for tables that the configuration does not capture."""
    problems = [problem for table in tables if (problem := _problem(config, table))]
    if problems:
        raise ConfigError(problems)
    names = [re.escape(table) for table in tables]
    data: dict[str, Any] = {"data-collections": names}
    if where is not None:
        data["additional-conditions"] = [{"data-collection": name, "filter": where} for name in names]
    return data


def _problem(config: ProducerConfig, name: str) -> str:
    database, _, table = name.partition(".")
    if not (database and table):
        return f"{name!r} is not a table as db.table"
    if not config.filters.tables.includes(TableId(database, table)):
        return f"{name} is not captured: database.include.list, table.include.list or an exclude list leaves it out"
    return ""


def run_signal(
    config: ProducerConfig, signal_type: str, data: Mapping[str, Any], read: Callable[[], Mapping[str, Any]] | None
) -> None:
    """Send a signal, and wait until the producer has taken it; ``read`` returns its /status, None: do not wait.

    Raises NoAnswerError before it is sent if no producer answers; then SignalRefusedError if it is not applied, and
    ResponseUnknownError if the producer does not say what it made of it.
    """
    require_signal_topic(config)
    if read is not None:
        read()
    sent = send_signal(config, signal_type, data)
    sys.stdout.write(f"sent {signal_type} to {sent.topic} at offset {sent.offset}, id {sent.id}\n")
    sys.stdout.flush()
    if read is not None:
        limit_s = max(_LEAST_WAIT_S, _POLLS * config.signals.poll_interval_ms / 1000)
        sys.stdout.write(f"{_wait_until_taken(sent, read, limit_s)}\n")


def _wait_until_taken(sent: SentSignal, read: Callable[[], Mapping[str, Any]], limit_s: float) -> str:
    until = time.monotonic() + limit_s
    while True:
        try:
            signals = read()["signals"]
        except NoAnswerError as error:
            raise _unknown(sent, f"the signal is sent, and {error.message} any more") from error
        for response in signals.get("responses", ()):
            if response["id"] == sent.id:
                if not response["applied"]:
                    raise SignalRefusedError(
                        f"the producer has not applied the signal: {response['reason']}",
                        hint="remove the reason, and run the command again",
                        id=sent.id,
                    )
                return f"applied, except: {response['reason']}" if response["reason"] else "applied"
        if signals.get("kafka_offset", -1) >= sent.offset:
            raise _unknown(sent, "the producer has read the signals up to this one, and has no response to it")
        if time.monotonic() > until:
            raise _unknown(sent, f"the producer has not read the signal within {limit_s:g} s")
        time.sleep(_POLL_S)


def _unknown(sent: SentSignal, problem: str) -> ResponseUnknownError:
    return ResponseUnknownError(
        problem,
        hint="look for the id in the log of the producer before you send it again: it takes the signal later, if "
        f"it reads {sent.topic}, as signal.kafka.topic and signal.kafka.bootstrap.servers say",
        id=sent.id,
    )
