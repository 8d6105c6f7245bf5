"""The options that the commands of both halves share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from tailrace.runtime.errors import ConfigError
from tailrace.runtime.printable import printable, printable_lines
from tailrace.runtime.versions import versions_text

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Configuration file: JSON (flat, nested, or as posted to Kafka Connect), .properties or a pipeline file.",
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Sets one property; overrides all other sources.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Logs at level debug, and prints the traceback of an error.")]


def _print_versions(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(versions_text())
        raise typer.Exit


def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True, help="Prints the versions of Tailrace and libraries."
        ),
    ] = False,
) -> None:
    """Take the options of the program itself."""


def print_configuration(settings: Mapping[str, str], warnings: Iterable[str]) -> None:
    """Print a described configuration as properties, in order."""
    for line in sorted(f"{name}={value}" for name, value in settings.items()):
        sys.stdout.write(f"{printable(line)}\n")
    for warning in warnings:
        sys.stderr.write(f"warning: {printable_lines(warning)}\n")


def parse_settings(settings: list[str] | None) -> Mapping[str, str]:
    """Return the properties of ``--set``. Raises ConfigError for those that are not of the form key=value."""
    wrong = [f"--set {item!r} is not of the form key=value" for item in settings or () if "=" not in item]
    if wrong:
        raise ConfigError(wrong)
    return dict(item.split("=", 1) for item in settings or ())
