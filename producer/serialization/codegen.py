"""Generated source: lines under way, the objects they name, and their compilation.

Only this module runs generated code. It is made of column names (as escaped literals), numbers, and expressions written
in this project; no value of a row ever becomes source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

_PLAIN_LITERAL: Final = frozenset(map(chr, range(0x20, 0x7F))) - set("\\'{}")


class CodeBuilder:
    """The global names of a generated function."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}

    def bind(self, hint: str, value: Any) -> str:
        """Return a name for an object; the hint keeps tracebacks readable."""
        name = f"{hint}_{len(self._objects)}"
        self._objects[name] = value
        return name

    def compile(self, name: str, parameters: str, lines: Iterable[str]) -> Callable[..., Any]:
        """Return the function of these lines. Objects become local names: the fastest to look up."""
        bound = "".join(f", {known}={known}" for known in self._objects)
        source = f"def {name}({parameters}{bound}):\n" + "".join(f"    {line}\n" for line in lines)
        scope = dict(self._objects)
        exec(compile(source, f"<tailrace {name}>", "exec"), scope)  # noqa: S102 - see the module's docstring
        function: Callable[..., Any] = scope[name]
        return function


def fstring_literal(text: str) -> str:
    """Return text as the inside of a single-quoted f-string."""
    return "".join(c if c in _PLAIN_LITERAL else c * 2 if c in "{}" else f"\\x{ord(c):02x}" for c in text)


def indent(lines: Iterable[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" for line in lines]
