"""The producer's commands: ``produce``, ``config``, ``check`` and ``adopt``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import structlog
import typer

from tailrace.producer.config import ProducerConfig, describe, load
from tailrace.runtime.errors import ConfigError, PrerequisiteError, TailraceError

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="JSON, as posted to Kafka Connect or flat, or a .properties file."),
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One property; wins over all else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Log at level debug and show the traceback of an error.")]

log = structlog.get_logger(__name__)


def register(app: typer.Typer) -> None:
    """Add the producer's commands to the command line."""
    app.command("produce")(produce)
    app.command("config")(show_config)
    app.command("check")(check)
    app.command("adopt")(takeover)


def produce(config: ConfigFile = None, settings: Set = None, debug: Debug = False) -> None:
    """Read the tables and follow the log into Kafka, until stopped by SIGTERM or SIGINT."""
    with _errors_told(debug):
        settled = _load(config, settings)
        # The edges are imported late, so that a fault of the configuration is told at once.
        from tailrace.producer.app.capture import run  # noqa: PLC0415
        from tailrace.producer.ops.http import HttpServer  # noqa: PLC0415
        from tailrace.producer.ops.log import configure  # noqa: PLC0415
        from tailrace.producer.ops.status import Phase, Status  # noqa: PLC0415

        configure(settled.ops.log_format, "debug" if debug else settled.ops.log_level)
        for warning in settled.warnings:
            log.warning("a setting has no effect", setting=warning)
        status = Status(settled.topics.prefix)
        stop = stop_on_signals()
        with HttpServer(status, address=settled.ops.http_address, port=settled.ops.http_port) as http:
            if http.port:
                log.info("http port open", address=settled.ops.http_address, port=http.port)
            run(settled, stop, status=status)
        status.phase(Phase.STOPPED)


def show_config(config: ConfigFile = None, settings: Set = None, debug: Debug = False) -> None:
    """Print the effective configuration, secrets masked."""
    with _errors_told(debug):
        settled = _load(config, settings)
        for line in sorted(f"{name}={value}" for name, value in describe(settled).items()):
            sys.stdout.write(f"{line}\n")
        for warning in settled.warnings:
            sys.stderr.write(f"warning: {warning}\n")


def check(config: ConfigFile = None, settings: Set = None, debug: Debug = False) -> None:
    """Check the configuration and the source's prerequisites; write nothing."""
    with _errors_told(debug):
        settled = _load(config, settings)
        from tailrace.producer.app.connection_settings import source_settings  # noqa: PLC0415
        from tailrace.producer.app.validation import validate_tables  # noqa: PLC0415
        from tailrace.producer.mysql.catalog import list_tables, read_table  # noqa: PLC0415
        from tailrace.producer.mysql.connection import connect  # noqa: PLC0415
        from tailrace.producer.mysql.prerequisites import check as check_source  # noqa: PLC0415
        from tailrace.producer.serialization.captured_tables import CapturedTables  # noqa: PLC0415

        session = connect(source_settings(settled))
        try:
            captured = list_tables(session, settled.filters.tables.wanted)
            notes = check_source(session, captured, server_id=settled.database.server_id)
            read = partial(read_table, session)
            asked = validate_tables(settled, CapturedTables(settled, read), captured, read)
        finally:
            session.close()
        for note in (*settled.warnings, *notes, *asked.notes):
            sys.stderr.write(f"note: {note}\n")
        if asked.faults:
            raise PrerequisiteError(asked.faults)
        sys.stdout.write(f"ready to capture {len(captured)} table(s)\n")


def takeover(
    *,
    config: ConfigFile = None,
    settings: Set = None,
    connector: Annotated[
        str | None, typer.Option("--connector", help="Its name in Kafka Connect; needed where two share the prefix.")
    ] = None,
    offset_topic: Annotated[
        str, typer.Option("--offset-topic", help="The worker's offset.storage.topic.")
    ] = "connect-offsets",
    offset_file: Annotated[
        Path | None,
        typer.Option("--offset-file", help="A standalone worker's or an engine's offset.storage.file.filename."),
    ] = None,
    status_topic: Annotated[
        str, typer.Option("--status-topic", help="The worker's status.storage.topic.")
    ] = "connect-status",
    stopped: Annotated[
        bool, typer.Option("--stopped", help="The connector is stopped, though its last status says that it runs.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace state of Tailrace that is there already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be stored; write nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Take over the topics of a Debezium connector that was stopped: ``produce`` then goes on exactly there."""
    with _errors_told(debug):
        settled = _load(config, settings)
        from tailrace.producer.ops.log import configure  # noqa: PLC0415
        from tailrace.producer.takeover.report import report  # noqa: PLC0415
        from tailrace.producer.takeover.takeover import TakeoverOptions  # noqa: PLC0415
        from tailrace.producer.takeover.takeover import take_over as take  # noqa: PLC0415

        configure(settled.ops.log_format, "debug" if debug else settled.ops.log_level)
        wish = TakeoverOptions(
            connector=connector,
            offset_topic=offset_topic,
            offset_file=offset_file,
            status_topic=status_topic,
            stopped=stopped,
            force=force,
            dry_run=dry_run,
        )
        adopted = take(settled, wish)
        for note in (*settled.warnings, *adopted.notes):
            sys.stderr.write(f"note: {note}\n")
        sys.stdout.write(report(adopted, stored=not dry_run))


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; a second one ends the process where it stands."""
    stop = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            # Nothing is lost: what is not committed is read again by the next start.
            os._exit(128 + number)
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop


def _load(config: Path | None, settings: list[str] | None) -> ProducerConfig:
    faults = [f"--set {item!r} is not of the form key=value" for item in settings or () if "=" not in item]
    if faults:
        raise ConfigError(faults)
    return load(config, os.environ, dict(item.split("=", 1) for item in settings or ()))


@contextmanager
def _errors_told(debug: bool) -> Iterator[None]:
    """Tell an error on stderr and end with code 1; a traceback only with ``--debug``."""
    try:
        yield
    except (TailraceError, OSError) as error:
        if debug:
            raise
        sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(1) from None
    except Exception as error:
        if debug or isinstance(error, (typer.Exit, typer.Abort)):
            raise
        sys.stderr.write(
            f"error: {type(error).__name__}: {error}\n  remedy: run with --debug and report the traceback\n"
        )
        raise typer.Exit(1) from None
