"""``python -m tailrace.producer``: the producer's commands alone."""

from __future__ import annotations

import typer

from tailrace.producer.cli import register


def main() -> None:
    """Run a command of the producer."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="MySQL to Kafka as Debezium events.")
    register(app)
    app()


if __name__ == "__main__":
    main()
