"""The ``tailrace`` command: the commands of the installed halves."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import entry_points

import typer

from tailrace.runtime.commands import root
from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.interrupt import interrupt_on
from tailrace.runtime.run_command import register_run
from tailrace.runtime.status_command import register_status
from tailrace.runtime.status_report import Program

COMMANDS_GROUP = "tailrace.commands"


def build() -> typer.Typer:
    """Return the command line application with the commands of every installed half."""
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, help="Change data capture, MySQL to Kafka to tables."
    )
    app.callback()(root)
    programs: dict[str, Program] = {}
    for entry in sorted(entry_points(group=COMMANDS_GROUP), key=lambda e: e.name):
        try:
            program: Program = entry.load()(app)
            programs[program.title] = program
        except ModuleNotFoundError as missing:
            # An image contains one half only: the other half, or a library that it needs, is not installed. A module
            # that is missing within an installed half is an error.
            half = entry.module.rpartition(".")[0]
            if (missing.name or "").startswith(f"{half}."):
                raise
    register_run(app, programs.get("producer"), programs.get("consumer"))
    register_status(app, programs.get("producer"), programs.get("consumer"))
    return app


def main() -> None:
    """Run a command. An error is printed without a traceback, and the exit code is that of the error."""
    interrupt_on(signal.SIGINT)
    # Each command reports its own errors; with --debug it raises them, and they must pass here too.
    with reporting_errors(debug="--debug" in sys.argv):
        build()()


if __name__ == "__main__":
    main()
