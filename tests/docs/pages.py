"""Reads the Markdown pages of the repository: headings, links, code blocks, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.samples import ROOT

_TOP_LEVEL: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES: Final = (*(ROOT / name for name in _TOP_LEVEL), *sorted((ROOT / "docs").rglob("*.md")))
_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<language>\w*) *$")
_LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """One fenced code block and the line of its first fence."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced code blocks of a page."""
    start, language, indent, lines = 0, "", 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if not start and fence:
            start, language, indent, lines = number, fence["language"], len(fence["indent"]), []
        elif start and fence and not fence["language"]:
            yield Block(page, start, language, "\n".join(lines))
            start = 0
        elif start:
            lines.append(line[indent:])
    assert not start, f"{page}:{start}: the code block has no end"


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    kept, inside = list[str](), False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def links(page: Path) -> Iterator[str]:
    """Yield the targets of the links of a page, code excluded."""
    for match in _LINK.finditer(re.sub(r"`[^`]*`", "", prose(page))):
        yield match["target"]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as the site and the code host make them."""
    found = set()
    for line in prose(page).splitlines():
        if heading := re.match(r"#{1,6} +(?P<text>.+)", line):
            text = re.sub(r"[^\w\s-]", "", heading["text"].lower()).strip()
            found.add(re.sub(r"[\s-]+", "-", text))
    return found


def table(page: Path, heading: str) -> list[tuple[str, ...]]:
    """Return the rows of the first table behind a heading, without its head."""
    _, found, rest = page.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    assert found, f"{page} has no heading {heading!r}"
    rows = []
    for line in rest.splitlines():
        if line.lstrip().startswith("|"):
            rows.append(tuple(cell.strip() for cell in line.strip().strip("|").split("|")))
        elif rows:
            break
    return rows[2:]
