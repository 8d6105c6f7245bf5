"""The ``tailrace`` command: gathers the subcommands that the installed halves offer."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import typer

from tailrace.runtime.errors import TailraceError

COMMANDS_GROUP = "tailrace.commands"


def build() -> typer.Typer:
    """Return the command line application with every half that is installed."""
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, help="Change data capture, MySQL to Kafka to tables."
    )

    @app.callback()
    def root() -> None:
        """Change data capture: MySQL to Kafka as Debezium events, Kafka through Spark to tables."""

    for entry in sorted(entry_points(group=COMMANDS_GROUP), key=lambda e: e.name):
        try:
            entry.load()(app)
        except ModuleNotFoundError as missing:
            # An image carries one half only: the other half, or a library that it needs, is not installed. A module
            # that is missing within an installed half is a fault.
            half = entry.module.rpartition(".")[0]
            if (missing.name or "").startswith(f"{half}."):
                raise
    return app


def main() -> None:
    """Run the command; a Tailrace error is a message and exit code 1, without a traceback."""
    try:
        build()()
    except TailraceError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
