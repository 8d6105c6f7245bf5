"""What a program stores for its next start has a format version.

The rule, for everything that is stored: within a version, fields and kinds of records may be added, and a program
ignores those that it does not know (``schemas/known_fields.py``). So a program can be rolled back. A change that an
older program must not ignore gets a new version, and a program refuses a version that is newer than its own: it does
not guess. What has no version was stored before there was one: it is version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.versions import program_version


class NewerFormatError(TailraceError):
    """What is stored has a format that only a later program knows."""


def format_in(text: str) -> dict[str, Any]:
    """Return what ``require_known_format`` takes, of a format that is stored as a text: ``2 9.8``; empty is the first.

    A later program writes its version behind the number.
    """
    number, _, program = text.partition(" ")
    return {"format": int(number or 1), **({"program": program} if program else {})}


def require_known_format(what: str, stored: Mapping[str, Any], known: int) -> None:
    """Raise NewerFormatError if ``stored`` names a ``format`` later than ``known``; ``program`` names who wrote it."""
    found = stored.get("format", 1)
    if type(found) is not int or found < 1:
        raise ValueError(f"format is {found!r:.100}, not a positive integer")
    if found > known:
        raise NewerFormatError(
            f"{what} has format {found}, written by Tailrace {stored.get('program', 'of a later version')}; "
            f"this is Tailrace {program_version()}, which knows formats up to {known}",
            hint="run the version that wrote it, or a later one",
        )
