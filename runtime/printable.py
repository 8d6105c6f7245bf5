"""Texts of other systems for a person's screen: they can neither look like another line nor control the terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with its line breaks and control characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines in the same way; the lines behind the first one are indented."""
    first, *others = map(printable, text.replace("\r\n", "\n").expandtabs(4).split("\n"))
    return "".join([first, *(f"\n    {line.removeprefix('    ')}" for line in others)])
