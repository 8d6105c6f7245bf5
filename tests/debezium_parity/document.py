"""Writes the tables of docs/compatibility.md from what the oracle uses, so that they cannot drift apart."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.debezium_parity.artifacts import debezium_version
from tests.debezium_parity.exceptions import EXCEPTIONS
from tests.debezium_parity.variants import VARIANTS

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
_BEGIN: Final = "<!-- generated: {} -->"
_END: Final = "<!-- end -->"


def sections() -> dict[str, str]:
    """Return the generated parts of the page by their names."""
    modes = ["| run | key / value | properties given to both |", "| --- | --- | --- |"]
    for variant in VARIANTS:
        own = [f"`{name}={value}`".replace("|", "\\|") for name, value in variant.own.items()]
        given = "<br>".join(own) or "defaults"
        modes.append(f"| {variant.name} | {variant.converters} | {given} |")
    named = ["| name | reason |", "| --- | --- |", *(f"| {each.name} | {each.reason} |" for each in EXCEPTIONS)]
    version = f"Debezium {debezium_version()}, Kafka Connect 4.3.1, MySQL 8.0.15."
    return {
        "version": version,
        "modes": "\n".join(modes),
        "exceptions": "\n".join(named),
    }


def rendered(page: str) -> str:
    """Return the page with its generated parts written anew."""
    for name, text in sections().items():
        begin = _BEGIN.format(name)
        before, found, rest = page.partition(begin)
        if not found or _END not in rest:
            raise ValueError(f"the page has no part {begin} ... {_END}")
        page = f"{before}{begin}\n{text}\n{_END}{rest.partition(_END)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
