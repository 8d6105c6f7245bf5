"""``python -m tailrace.producer.config --docs`` prints docs/configuration.md."""

from __future__ import annotations

import sys

from tailrace.producer.config.reference import page


def main(arguments: list[str]) -> int:
    """Print the reference page."""
    if arguments != ["--docs"]:
        sys.stderr.write("usage: python -m tailrace.producer.config --docs > docs/configuration.md\n")
        return 2
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
