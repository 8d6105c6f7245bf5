"""The ``tailrace consume`` command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from tailrace.runtime.commands import ConfigFile, Debug, Settings, parse_settings
from tailrace.runtime.error_report import reporting_errors


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("consume")(consume)


def consume(
    config: ConfigFile = None,
    settings: Settings = None,
    show: Annotated[
        bool, typer.Option("--show", help="Prints the effective configuration, secrets masked, and exits.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Apply the change events of a topic prefix to tables or changelogs, with Spark in this process."""
    with reporting_errors(debug=debug):
        # Spark takes a second to import.
        from tailrace.spark_consumer.config import describe, load  # noqa: PLC0415

        loaded = load(config, os.environ, parse_settings(settings))
        if show:
            for line in sorted(f"{name}={value}" for name, value in describe(loaded).items()):
                sys.stdout.write(f"{line}\n")
            for warning in loaded.warnings:
                sys.stderr.write(f"warning: {warning}\n")
            return
        from tailrace.spark_consumer import app  # noqa: PLC0415

        app.run(loaded.model_copy(update={"log_level": "debug"}) if debug else loaded)
