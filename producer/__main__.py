"""``python -m tailrace.producer``: the producer's commands alone."""

from __future__ import annotations

import signal

import typer

from tailrace.producer.cli import register
from tailrace.runtime.commands import root
from tailrace.runtime.interrupt import interrupt_on
from tailrace.runtime.status_command import register_status


def main() -> None:
    """Run a command of the producer."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="MySQL to Kafka as Debezium events.")
    app.callback()(root)
    register_status(app, register(app), None)
    interrupt_on(signal.SIGINT)
    app()


if __name__ == "__main__":
    main()
