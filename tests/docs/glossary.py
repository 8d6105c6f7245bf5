"""The glossary, and the retired words, read from retired_words.md."""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from tests.docs.pages import table
from tests.docs.samples import ROOT

GLOSSARY: Final = ROOT / "docs" / "glossary.md"
RETIRED: Final = ROOT / "tests" / "docs" / "retired_words.md"
EVERYWHERE: Final = "everywhere"
NAMES: Final = "names"


class RetiredWord(NamedTuple):
    """A word or phrase, what to use instead, and whether it is retired from text too or from names only."""

    word: str
    instead: str
    where: str


@functools.cache
def retired_words() -> tuple[RetiredWord, ...]:
    """Return the list of retired words."""
    return tuple(RetiredWord(*row) for row in table(RETIRED, "## Words"))


def in_text(text: str) -> list[RetiredWord]:
    """Return the words retired everywhere that occur in a text, as whole words in any case."""
    return [
        entry
        for entry in retired_words()
        if entry.where == EVERYWHERE and re.search(rf"\b{re.escape(entry.word)}\b", text, re.IGNORECASE)
    ]


def in_name(name: str) -> list[RetiredWord]:
    """Return the retired words that are part of an identifier, a file name, a header or a metric."""
    humps = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    parts = f"_{'_'.join(part for part in re.split(r'[^A-Za-z0-9]+', humps) if part).lower()}_"
    return [entry for entry in retired_words() if f"_{entry.word.replace(' ', '_')}_" in parts]
