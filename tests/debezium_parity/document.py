"""Generates the list of docs/compatibility.md from the named exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.debezium_parity.about import KAFKA_CONNECT, MYSQL
from tests.debezium_parity.artifacts import debezium_version
from tests.debezium_parity.exceptions import EXCEPTIONS, QUIET

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
_BEGIN: Final = "<!-- generated: {} -->"
_END: Final = "<!-- end -->"


def sections() -> dict[str, str]:
    """Return the generated parts of the page by name."""
    shown = [each for each in EXCEPTIONS if each.name not in QUIET]
    named = [f"- **{each.name}**: {each.reason}" for each in shown]
    version = f"Debezium {debezium_version()}, Kafka Connect {KAFKA_CONNECT}, MySQL {MYSQL}."
    return {
        "version": version,
        "exceptions": "\n".join(["", *named, ""]),
    }


def rendered(page: str) -> str:
    """Return the page with current generated parts."""
    for name, text in sections().items():
        begin = _BEGIN.format(name)
        before, found, rest = page.partition(begin)
        if not found or _END not in rest:
            raise ValueError(f"{PAGE.name} has no section {begin} ... {_END}")
        page = f"{before}{begin}\n{text}\n{_END}{rest.partition(_END)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
