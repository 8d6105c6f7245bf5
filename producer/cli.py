"""The producer's commands."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from tailrace.producer.config import DEFINITION, ProducerConfig, describe, load
from tailrace.producer.ops.report import report
from tailrace.runtime.commands import ConfigFile, Debug, Settings, parse_settings, print_configuration
from tailrace.runtime.error_report import reporting_errors, shown
from tailrace.runtime.errors import exit_code_of
from tailrace.runtime.exit_code import ExitCode
from tailrace.runtime.logging import configure_logging
from tailrace.runtime.printable import printable_lines
from tailrace.runtime.status_command import read_status, require_port
from tailrace.runtime.status_report import Program, StatusAddress
from tailrace.schemas.verification import (
    ComparedTable,
    RepairRequest,
    Request,
    SumsProgress,
    Window,
    from_line,
    to_line,
)

log = structlog.get_logger(__name__)

_STOP_LIMIT_S: Final = 8.0
"""How long a stop may take; supervisors kill a process after ten seconds."""

_YOUNG_OBJECTS: Final = 20_000
"""About as many as one poll of the binlog makes."""


def register(app: typer.Typer) -> Program:
    """Add the producer's commands to the command line; return what ``tailrace status`` shows of it."""
    app.command("produce")(produce)
    app.command("config")(show_config)
    app.command("check")(check)
    app.command("takeover")(takeover)
    app.command("checksums")(checksums)
    app.command("snapshot")(snapshot)
    app.command("pause")(pause)
    app.command("resume")(resume)
    return _PROGRAM


def _status_address(config: ProducerConfig) -> StatusAddress:
    return StatusAddress(config.ops.http_address, config.ops.http_port, config.topics.prefix)


_PROGRAM: Final = Program(
    "producer",
    "produce",
    "tailrace.http.port",
    "prefix",
    lambda path: _status_address(load(path, os.environ, {})),
    report,
    lambda path: _print(load(path, os.environ, {})),
    lambda: DEFINITION.table.properties,
)


def _print(config: ProducerConfig) -> None:
    print_configuration(describe(config), config.warnings)


def produce(config: ConfigFile = None, settings: Settings = None, debug: Debug = False) -> None:
    """Take snapshots and stream changes to Kafka, until SIGTERM or SIGINT."""
    with _configured(config, settings, debug, in_log=True) as loaded:
        gc.disable()  # imports make no garbage: collections meanwhile are a tenth of their time
        # The database and Kafka clients are imported late, so that an error of the configuration appears at once.
        from tailrace.producer.app.capture import run  # noqa: PLC0415
        from tailrace.producer.app.snapshot_factory import fork_server  # noqa: PLC0415
        from tailrace.producer.ops.metrics import open_http_port  # noqa: PLC0415
        from tailrace.producer.ops.status import Phase, Status  # noqa: PLC0415

        _set_up_log(loaded, debug=debug)
        for warning in loaded.warnings:
            log.warning("setting has no effect", setting=warning)
        status = Status(loaded.topics.prefix)
        _set_up_collector()
        # Before there is a thread, a connection or a client.
        with fork_server(loaded) or nullcontext() as server:
            stop = stop_on_signals()
            with open_http_port(status, address=loaded.ops.http_address, port=loaded.ops.http_port):
                run(loaded, stop, status=status, fork_server=server)
        status.phase(Phase.STOPPED)


def _set_up_collector() -> None:
    """Collect cycles less often: the events of a poll all live until the last is written, and are not part of any.

    What is imported is never looked at again, so that a forked process shares its memory.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    gc.enable()


def show_config(config: ConfigFile = None, settings: Settings = None, debug: Debug = False) -> None:
    """Print the effective configuration, secrets masked."""
    with _configured(config, settings, debug) as loaded:
        _print(loaded)


def check(config: ConfigFile = None, settings: Settings = None, debug: Debug = False) -> None:
    """Check the configuration, and that the source, Kafka and the schema registries are ready. Nothing is written."""
    with _configured(config, settings, debug) as loaded:
        from tailrace.producer.app.check import check_servers  # noqa: PLC0415

        found = check_servers(loaded)
        for note in found.notes:
            sys.stderr.write(f"note: {printable_lines(note)}\n")
        # The last one is raised: a fault that a restart does not cure decides on the exit code.
        errors = sorted(found.errors, key=lambda error: exit_code_of(error) != ExitCode.TEMPFAIL)
        for error in errors[:-1]:
            sys.stderr.write(f"error: {shown(error)}\n")
        if errors:
            raise errors[-1]
        sys.stdout.write(f"ready to capture {found.tables} table(s)\n")


def takeover(
    *,
    config: ConfigFile = None,
    settings: Settings = None,
    connector: Annotated[
        str | None,
        typer.Option("--connector", help="Name of the connector; needed if several have the same topic prefix."),
    ] = None,
    offset_topic: Annotated[
        str, typer.Option("--offset-topic", help="The Kafka Connect worker's offset.storage.topic.")
    ] = "connect-offsets",
    offset_file: Annotated[
        Path | None,
        typer.Option(
            "--offset-file", help="The offset.storage.file.filename of a standalone worker or Debezium Server."
        ),
    ] = None,
    status_topic: Annotated[
        str, typer.Option("--status-topic", help="The Kafka Connect worker's status.storage.topic.")
    ] = "connect-status",
    stopped: Annotated[
        bool, typer.Option("--stopped", help="The connector is stopped, although its last status is RUNNING.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replaces the state that Tailrace has already stored.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Prints what would be stored, and writes nothing.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Take over the topics of a stopped Debezium connector. ``produce`` then resumes exactly at its offset."""
    with _configured(config, settings, debug) as loaded:
        from tailrace.producer.app.connection_settings import kafka_settings, mysql_source  # noqa: PLC0415
        from tailrace.producer.takeover.takeover import TakeoverOptions, take_over  # noqa: PLC0415

        _set_up_log(loaded, debug=debug)
        options = TakeoverOptions(
            connector=connector,
            offset_topic=offset_topic,
            offset_file=offset_file,
            status_topic=status_topic,
            stopped=stopped,
            force=force,
            dry_run=dry_run,
        )
        result = take_over(loaded, options, kafka=kafka_settings(loaded), source=mysql_source(loaded))
        for note in (*loaded.warnings, *result.notes):
            sys.stderr.write(f"note: {printable_lines(note)}\n")
        sys.stdout.write(result.report(stored=not dry_run))


def checksums(
    *,
    topic: Annotated[str, typer.Option("--topic", help="The topic of the table.")],
    config: ConfigFile = None,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Print what of a table can be compared, then its checksums as standard input requests them; for ``verify``."""
    with _configured(config, settings, debug) as loaded:
        from tailrace.producer.verify.table_checksums import answers  # noqa: PLC0415

        configure_logging("json", "error")
        requests = (each for each in map(from_line, sys.stdin.buffer) if isinstance(each, (Request, RepairRequest)))
        for record in answers(loaded, topic, requests):
            sys.stdout.buffer.write(to_line(record))
            if isinstance(record, (ComparedTable, SumsProgress, Window)):
                sys.stdout.buffer.flush()


NoWait = Annotated[bool, typer.Option("--no-wait", help="Only sends the signal: the producer takes it when it runs.")]


def snapshot(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="Captured tables, as db.table.")],
    *,
    where: Annotated[str | None, typer.Option("--where", help="Reads only the rows for which this SQL holds.")] = None,
    no_wait: NoWait = False,
    config: ConfigFile = None,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Have the running producer read tables again while it streams, by the signal execute-snapshot."""
    with _configured(config, settings, debug) as loaded:
        from tailrace.producer.app.signal_command import snapshot_data  # noqa: PLC0415

        _send(loaded, "execute-snapshot", snapshot_data(loaded, tables, where), wait=not no_wait)


def pause(
    *, no_wait: NoWait = False, config: ConfigFile = None, settings: Settings = None, debug: Debug = False
) -> None:
    """Pause the incremental snapshots of the running producer, which streams on, by the signal pause-snapshot."""
    with _configured(config, settings, debug) as loaded:
        _send(loaded, "pause-snapshot", {}, wait=not no_wait)


def resume(
    *, no_wait: NoWait = False, config: ConfigFile = None, settings: Settings = None, debug: Debug = False
) -> None:
    """Go on with the incremental snapshots of the running producer, by the signal resume-snapshot."""
    with _configured(config, settings, debug) as loaded:
        _send(loaded, "resume-snapshot", {}, wait=not no_wait)


def _send(config: ProducerConfig, signal_type: str, data: Mapping[str, Any], *, wait: bool) -> None:
    from tailrace.producer.app.signal_command import run_signal  # noqa: PLC0415

    address = require_port(_PROGRAM, _status_address(config)) if wait else None
    run_signal(config, signal_type, data, None if address is None else partial(read_status, _PROGRAM, address))


def stop_on_signals(limit_s: float = _STOP_LIMIT_S) -> threading.Event:
    """Return an event that SIGTERM and SIGINT set. A second signal ends the process at once.

    After ``limit_s`` the process ends in any case. Signals are read on a thread: a handler would run only when the main
    thread returns from its call into a client library.
    """
    stop = threading.Event()
    received, written = socket.socketpair()
    written.setblocking(False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        with received, written:  # both stay open as long as the thread runs
            received.recv(1)
            stop.set()
            received.settimeout(limit_s)
            try:
                code = 128 + received.recv(1)[0]
            except TimeoutError:
                log.warning("stopped without waiting for a server: the next start reads again what is missing")
                code = 0
            # Nothing is lost: the next start reads again what has not been committed.
            os._exit(code)

    threading.Thread(target=watch, name="signals", daemon=True).start()
    return stop


@contextmanager
def _configured(
    config: Path | None, settings: list[str] | None, debug: bool, *, in_log: bool = False
) -> Iterator[ProducerConfig]:
    """Load the configuration; report errors, also those of the block."""
    with reporting_errors(debug=debug, in_log=in_log):
        loaded = load(config, os.environ, parse_settings(settings))
        yield loaded


def _set_up_log(config: ProducerConfig, *, debug: bool) -> None:
    configure_logging(config.ops.log_format, "debug" if debug else config.ops.log_level)
