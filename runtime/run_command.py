"""``tailrace run``: producer and consumer of one pipeline file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import orjson
import typer

from tailrace.runtime.commands import Debug
from tailrace.runtime.config.files import PIPELINE_SUFFIXES
from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.errors import ConfigError
from tailrace.runtime.logging import configure_logging
from tailrace.runtime.status_report import Program
from tailrace.runtime.supervisor import Supervisor


def register_run(app: typer.Typer, producer: Program | None, consumer: Program | None) -> None:
    """Add the command, which needs both halves."""

    def run(
        file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The pipeline file, YAML.")] = None,
        *,
        show: Annotated[
            bool, typer.Option("--print", help="Prints both effective configurations, secrets masked, and exits.")
        ] = False,
        schema: Annotated[
            bool, typer.Option("--schema", help="Prints the JSON schema of pipeline files, and exits.")
        ] = False,
        debug: Debug = False,
    ) -> None:
        """Run producer and consumer of a pipeline file, until one of them ends, SIGTERM or SIGINT."""
        with reporting_errors(debug=debug):
            if producer is None or consumer is None:
                raise ConfigError(["run needs both halves of Tailrace: install tailrace[producer,spark]"])
            if schema:
                from tailrace.runtime.pipeline_schema import pipeline_schema  # noqa: PLC0415 - needs YAML

                found = pipeline_schema(producer.properties(), consumer.properties())
                sys.stdout.buffer.write(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
                return
            programs = (producer, consumer)
            path = _checked(file, programs)
            if show:
                for program in programs:
                    sys.stdout.write(f"# {program.title}\n")
                    program.show(path)
                return
            configure_logging("auto", "debug" if debug else "info")
            tailrace = (sys.executable, "-P", "-m", "tailrace.runtime.cli")  # -P: no modules of the working directory
            options = ("--config", str(path), *(("--debug",) if debug else ()))
            commands = {program.title: (*tailrace, program.command, *options) for program in programs}
            code = Supervisor(commands).run()
        raise typer.Exit(code)

    def init(
        file: Annotated[
            Path, typer.Argument(metavar="FILE", help="The file to write; its name is the topic prefix.")
        ] = Path("pipeline.yaml"),
    ) -> None:
        """Ask five questions and write a pipeline file: a MySQL source, Delta tables."""
        from tailrace.runtime.init_command import write_pipeline  # noqa: PLC0415 - needs YAML

        with reporting_errors():
            write_pipeline(file)

    app.command("run")(run)
    app.command("init")(init)


def _checked(file: Path | None, programs: Iterable[Program]) -> Path:
    """Return the file. Raises ConfigError with the problems of both configurations."""
    if file is None or file.suffix not in PIPELINE_SUFFIXES:
        raise ConfigError([f"{file or 'FILE'} is no pipeline file: name one that ends with .yaml or .yml"])
    problems: dict[str, None] = {}
    for program in programs:
        try:
            program.address(file)
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ConfigError(list(problems))
    return file
