"""The ``tailrace consume`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``consume`` to the command line."""

    @app.command()
    def consume(
        config: Annotated[
            Path | None,
            typer.Option(help="JSON or .properties file; environment variables are read over it."),
        ] = None,
        show: Annotated[
            bool, typer.Option("--show", help="Print the effective settings, secrets masked, and end.")
        ] = False,
    ) -> None:
        """Apply the topics of a prefix to tables or changelogs, with Spark in this process."""
        from tailrace.spark_consumer import app as consumer  # noqa: PLC0415 - Spark takes a second to import
        from tailrace.spark_consumer import config as configuration  # noqa: PLC0415

        loaded = configuration.load(config)
        if show:
            for name, value in sorted(loaded.shown().items()):
                typer.echo(f"{name}={value}")
            return
        consumer.run(loaded)
