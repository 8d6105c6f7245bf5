"""Which versions run: of Tailrace, of Python, and of the libraries that it requires."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from platform import python_version
from typing import Final

_PROGRAM: Final = "tailrace"


@cache
def program_version() -> str:
    return version(_PROGRAM)


def versions() -> dict[str, str]:
    """Return the versions by name. A library that is not installed, such as one of the other half, is left out."""
    found = {_PROGRAM: program_version(), "python": python_version()}
    for name in (re.split(r"[^\w.-]", requirement)[0] for requirement in requires(_PROGRAM) or ()):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def versions_text() -> str:
    """Return a line for each version."""
    return "".join(f"{name} {number}\n" for name, number in versions().items())
