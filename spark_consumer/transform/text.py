"""The texts of transforms: lists of expressions, and how a message shows the position of a fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_TOKEN: Final = re.compile(
    r"""
    (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>(?<![\w`])[rR](?:'[^']*'|"[^"]*"))
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)
    | (?P<open>['"`])
    | (?P<sign>[][(){},])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a setting."""

    setting: str
    text: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of the text of a setting."""

    source: Source
    start: int
    text: str

    def fault(self, message: str, index: int = 0, stop: int | None = None) -> str:
        """Return a message with the position of a fault: ``index`` to ``stop`` in this part, both included."""
        at = min(self.start + max(index, 0), len(self.source.text))
        before = self.source.text[:at]
        line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1)
        shown = self.source.text.splitlines()[line - 1] if self.source.text.strip() else ""
        length = 1 if stop is None else max(1, min(stop - index + 1, len(shown) - column))
        marked = re.sub(r"[^\t]", " ", shown[:column]) + "^" * length
        return f"{self.source.setting}, line {line}, column {column + 1}: {message}\n    {shown}\n    {marked}"


class UnbalancedTextError(ValueError):
    """A quote or a parenthesis is not closed; the message has the position."""


def split_list(source: Source) -> list[Fragment]:
    """Return the parts of a list of expressions, as commas outside of quotes, parentheses and comments separate them.

    An empty part is kept: the parser of the expressions reports it.
    """
    return list(_parts(source))


def _parts(source: Source) -> Iterator[Fragment]:
    whole = Fragment(source, 0, source.text)
    open_signs: list[tuple[str, int]] = []
    start = position = 0
    while (found := _TOKEN.search(source.text, position)) is not None:
        position = found.end()
        kind, sign = found.lastgroup, found[0]
        if kind == "block":
            position = _end_of_block(whole, found.start())
        elif kind == "open":
            raise UnbalancedTextError(whole.fault(f"the quote {sign} is not closed", found.start()))
        elif kind == "sign" and sign in _OPENING:
            open_signs.append((_OPENING[sign], found.start()))
        elif kind == "sign" and sign == ",":
            if not open_signs:
                yield _stripped(source, start, found.start())
                start = position
        elif kind == "sign" and (not open_signs or open_signs.pop()[0] != sign):
            raise UnbalancedTextError(whole.fault(f"{sign} closes nothing", found.start()))
    if open_signs:
        raise UnbalancedTextError(whole.fault(f"{source.text[open_signs[-1][1]]} is not closed", open_signs[-1][1]))
    yield _stripped(source, start, len(source.text))


def _end_of_block(whole: Fragment, start: int) -> int:
    depth = 0
    for found in re.finditer(r"/\*|\*/", whole.text[start:]):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return start + found.end()
    raise UnbalancedTextError(whole.fault("the comment is not closed", start))


def _stripped(source: Source, start: int, end: int) -> Fragment:
    text = source.text[start:end]
    return Fragment(source, start + len(text) - len(text.lstrip()), text.strip())
