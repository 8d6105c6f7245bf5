"""The commands of the consumer: ``tailrace consume``, ``tailrace reload`` and ``tailrace verify``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from tailrace.runtime.commands import ConfigFile, Debug, Settings, parse_settings, print_configuration
from tailrace.runtime.config.property import Property
from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.errors import ConfigError
from tailrace.runtime.logging import configure_logging
from tailrace.runtime.status_report import Program, StatusAddress
from tailrace.spark_consumer.monitor.report import report


def register(app: typer.Typer) -> Program:
    """Add the commands to the command line; return what ``tailrace status`` shows of a query."""
    app.command("consume")(consume)
    app.command("reload")(reload)
    app.command("verify")(verify)
    return Program("consumer", "consume", "monitor.port", "query", _status_address, report, _show, _properties)


def _show(config: Path) -> None:
    from tailrace.spark_consumer.config import describe, load  # noqa: PLC0415

    loaded = load(config, os.environ)
    print_configuration(describe(loaded), loaded.warnings)


def _properties() -> Iterable[Property]:
    from tailrace.spark_consumer.config.definition import all_properties  # noqa: PLC0415

    return all_properties()


def _status_address(config: Path) -> StatusAddress:
    from tailrace.spark_consumer.config import load  # noqa: PLC0415

    loaded = load(config, os.environ)
    return StatusAddress(loaded.monitor_host, loaded.monitor_port, loaded.name)


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
    with reporting_errors(debug=debug, in_log=True):
        # Spark takes a second to import.
        from tailrace.spark_consumer.config import describe, load  # noqa: PLC0415

        loaded = load(config, os.environ, parse_settings(settings))
        if show:
            print_configuration(describe(loaded), loaded.warnings)
            return
        from tailrace.spark_consumer import app  # noqa: PLC0415

        app.run(loaded.model_copy(update={"log_level": "debug"}) if debug else loaded)


def verify(
    *,
    consumer: Annotated[Path, typer.Option("--consumer", help="Configuration of the consumer.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="Configuration of the producer; not for --certificates.")
    ] = None,
    tables: Annotated[
        str, typer.Option("--tables", help="Regular expression of db.table; all tables without it.")
    ] = "",
    source: Annotated[
        str | None,
        typer.Option(
            "--source", help="What runs the producer's tailrace, such as 'ssh db tailrace'; --config is there."
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", help="Seconds that a target may take to apply what the source shows.")
    ] = 600.0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Has the running producer read the rows again whose keys differ.")
    ] = False,
    topics: Annotated[
        bool, typer.Option("--topics", help="Compares the last record of each key of the topics, and no target.")
    ] = False,
    sample: Annotated[
        str | None, typer.Option("--sample", help="Compares a part of the keys, such as 1%: each time the same.")
    ] = None,
    certificates: Annotated[
        bool,
        typer.Option(
            "--certificates", help="Compares the topics with the END watermarks of their snapshots, without the source."
        ),
    ] = False,
    metrics_file: Annotated[
        Path | None, typer.Option("--metrics-file", help="Gets the metrics of the run, for Prometheus's node exporter.")
    ] = None,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Compare the target tables with the source while both are written. Exit code 0: equal, 3: different."""
    with reporting_errors(debug=debug):
        from tailrace.spark_consumer.config import load  # noqa: PLC0415

        loaded = load(consumer, os.environ, parse_settings(settings))
        configure_logging(loaded.log_format, "debug" if debug else loaded.log_level)
        if certificates:
            if repair or topics or sample is not None or source is not None:
                raise ConfigError(["--certificates takes no --repair, --topics, --sample and --source"])
            from tailrace.spark_consumer.verify import snapshot  # noqa: PLC0415

            code = snapshot.verify(loaded, tables, metrics_file)
        else:
            if config is None:
                raise ConfigError(["--config is missing: the configuration of the producer"])
            from tailrace.spark_consumer.verify import command  # noqa: PLC0415

            size = command.sample_size("100%" if sample is None else sample)
            read = command.source_command(source, str(config))
            options = command.VerifyOptions(read, tables, wait, repair, topics, size, metrics_file)
            code = command.verify(loaded, options)
    raise typer.Exit(code)
