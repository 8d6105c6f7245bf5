"""The commands of the consumer: ``tailrace consume`` and ``tailrace reload``."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

import typer

from tailrace.runtime.commands import ConfigFile, Debug, Settings, parse_settings
from tailrace.runtime.error_report import reporting_errors


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("consume")(consume)
    app.command("reload")(reload)


def reload(
    topic: Annotated[str, typer.Option("--topic", help="The topic of the table.")],
    start: Annotated[
        Literal["earliest", "latest"],
        typer.Option("--from", help="latest: behind all records that the topic has now."),
    ] = "earliest",
    config: ConfigFile = None,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Load one table again at the next start of its query, which is stopped, and whose target table is moved away."""
    with reporting_errors(debug=debug):
        from tailrace.spark_consumer.config import load  # noqa: PLC0415
        from tailrace.spark_consumer.reload import reload as store  # noqa: PLC0415

        starts = store(load(config, os.environ, parse_settings(settings)), topic, start)
        begins = start if start == "earliest" else ", ".join(f"partition {n}: {at}" for n, at in sorted(starts.items()))
        sys.stdout.write(f"{topic} begins at the next start of the query: {begins}\n")


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
