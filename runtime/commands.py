"""What the commands of both halves share: options, and the report of errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tailrace.runtime.errors import ConfigError, TailraceError

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="Configuration file: JSON (flat, nested, or as posted to Kafka Connect) or .properties."
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Sets one property; overrides all other sources.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Logs at level debug, and prints the traceback of an error.")]


def parse_settings(settings: list[str] | None) -> Mapping[str, str]:
    """Return the properties of ``--set``. Raises ConfigError for those that are not of the form key=value."""
    wrong = [f"--set {item!r} is not of the form key=value" for item in settings or () if "=" not in item]
    if wrong:
        raise ConfigError(wrong)
    return dict(item.split("=", 1) for item in settings or ())


@contextmanager
def reporting_errors(*, debug: bool = False) -> Iterator[None]:
    """Print an error to stderr and exit with code 1. With ``debug`` the error is raised with its traceback."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except (TailraceError, OSError) as error:
        if debug:
            raise
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    except Exception as error:
        if debug:
            raise
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n  hint: run with --debug and report the traceback\n")
        raise SystemExit(1) from None
