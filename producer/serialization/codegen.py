"""Generation of Python source: the builder of one function, the objects that the source names, and compilation.

Only this module executes generated code. The source consists of column names (as escaped literals), numbers, and
expressions written in this project; the values of rows never become source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from struct import Struct
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, Final

_PLAIN_LITERAL: Final = frozenset(map(chr, range(0x20, 0x7F))) - set("\\'{}")
_MAX_SHOWN: Final = 60
_LONGEST_KEPT: Final = 2_000
_MOST_KEPT: Final = 500


class CodeBuilder:
    """Builds one generated function."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}

    def bind(self, hint: str, value: Any) -> str:
        """Return a name for an object in the function; the hint keeps tracebacks readable."""
        name = f"{hint}_{len(self._objects)}"
        self._objects[name] = value
        return name

    def compile(
        self, name: str, parameters: str, lines: Iterable[str], *, at_first_call: bool = False
    ) -> Callable[..., Any]:
        """Compile the lines into a function. Objects become local names, which are the fastest to look up.

        ``at_first_call``: for a function that is perhaps never called. Each later call then costs more.
        """
        body = "".join(f"    {line}\n" for line in lines)
        compiled = partial(self._compiled, name, parameters, body)
        function = _at_first_call(name, compiled) if at_first_call else compiled()
        objects = "".join(f"# {known} = {_describe(value)}\n" for known, value in self._objects.items())
        vars(function)["source"] = f"{objects}def {name}({parameters}):\n{body}"
        return function

    def _compiled(self, name: str, parameters: str, body: str) -> Callable[..., Any]:
        bound = "".join(f", {known}={known}" for known in self._objects)
        scope = dict(self._objects)
        exec(_code(name, f"def {name}({parameters}{bound}):\n{body}"), scope)  # noqa: S102 - see the module's docstring
        function: Callable[..., Any] = scope[name]
        return function


def _code(name: str, source: str) -> CodeType:
    """Return the code of a source. That of one column is the same for many columns, so short ones are kept."""
    if len(source) > _LONGEST_KEPT:
        return _new_code(name, source)
    return _kept_code(name, source)


def _new_code(name: str, source: str) -> CodeType:
    return compile(source, f"<tailrace {name}>", "exec")


_kept_code = lru_cache(_MOST_KEPT)(_new_code)


def _at_first_call(name: str, compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    function: Callable[..., Any] | None = None

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal function
        if function is None:  # two threads may both compile it
            function = compiled()
        return function(*arguments, **named)

    call.__name__ = name
    return call


def source_of(function: Callable[..., Any]) -> str:
    """Return the source of a generated function, after a comment for each object that it names."""
    return str(vars(function)["source"])


def _describe(value: Any) -> str:
    """Return a readable description of an object, the same in every process."""
    if isinstance(value, bytes | str):
        text = repr(value)
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(value)} in all)"
    if isinstance(value, tuple):
        return f"({', '.join(map(_describe, value))})"
    owner = getattr(value, "__self__", None)
    if isinstance(owner, Struct):
        return f"Struct({owner.format!r}).{value.__name__}"
    if isinstance(owner, re.Pattern):
        return f"re.compile({owner.pattern!r}).{value.__name__}"
    if isinstance(value, type | BuiltinFunctionType | FunctionType | MethodType):
        module = value.__module__ or ""
        if "source" in getattr(value, "__dict__", {}):
            return f"the generated function {value.__name__}"
        return f"{module}.{value.__qualname__}" if module not in {"", "builtins"} else value.__qualname__
    return f"an instance of {type(value).__module__}.{type(value).__qualname__}"


def fstring_literal(text: str) -> str:
    """Return text as the inside of a single-quoted f-string."""
    return "".join(c if c in _PLAIN_LITERAL else c * 2 if c in "{}" else f"\\x{ord(c):02x}" for c in text)


def indent(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Return lines indented by so many levels."""
    return [f"{'    ' * levels}{line}" for line in lines]


class BytesExpression:
    """Builds an expression that joins constants and values into bytes: ``b'…%b…%d' % (…)``."""

    _MAX_INLINE: Final = 64

    def __init__(self, builder: CodeBuilder) -> None:
        self._builder = builder
        self._format = ""
        self._arguments: list[str] = []

    def constant(self, data: bytes) -> BytesExpression:
        """Append a constant; a long one becomes an argument, because the whole format is scanned for every row."""
        if len(data) > self._MAX_INLINE:
            return self.value(self._builder.bind("constant", data))
        self._format += "".join(
            c * 2 if c == "%" else c if c in _PLAIN_LITERAL or c in "{}" else f"\\x{ord(c):02x}"
            for c in data.decode("latin-1")
        )
        return self

    def value(self, expression: str, conversion: str = "%b") -> BytesExpression:
        """Append the value of an expression."""
        self._format += conversion
        self._arguments.append(expression)
        return self

    def __str__(self) -> str:
        arguments = ", ".join(self._arguments)
        return f"b'{self._format}' % {f'({arguments})' if len(self._arguments) > 1 else f'({arguments},)'}"
