"""Value types of properties: how the text of a setting is read, and the words for what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import SecretStr

T = TypeVar("T")


def _write(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """A type of value. ``read`` raises ValueError, LookupError or OverflowError for a text that is not allowed."""

    expects: str
    """What is allowed, for error messages and the reference page; empty where any text is allowed."""
    read: Callable[[str], T]
    write: Callable[[T], str] = _write
    """The reverse of ``read``."""
    secret: bool = False
    """Values are never shown."""


class InvalidValueError(ValueError):
    """A value is not allowed, and the message says why."""


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


TEXT = ValueType("a text that is not empty", _not_empty)
ANY_TEXT = ValueType("", str)


def secret(value_type: ValueType[str]) -> ValueType[SecretStr]:
    """Return the type of texts whose values are never shown."""
    return ValueType(value_type.expects, lambda text: SecretStr(value_type.read(text)), secret=True)


SECRET = secret(ANY_TEXT)
SECRET_TEXT = secret(TEXT)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


BOOLEAN = ValueType("true or false", _boolean)


def integer(minimum: int, maximum: int | None = None) -> ValueType[int]:
    """Return the type of whole numbers from ``minimum`` to ``maximum``, both included."""

    def read(text: str) -> int:
        number = int(text.strip(), 10)
        if number < minimum or (maximum is not None and number > maximum):
            raise ValueError
        return number

    if maximum is None:
        return ValueType(f"a whole number, at least {minimum}", read)
    return ValueType(f"a whole number from {minimum} to {maximum}", read)


def decimal(minimum: float) -> ValueType[float]:
    """Return the type of decimal numbers, at least ``minimum``."""

    def read(text: str) -> float:
        number = float(text)
        if not minimum <= number < float("inf"):
            raise ValueError
        return number

    return ValueType(f"a number, at least {minimum:g}", read)


def one_of(choices: Any, *, rejected: Sequence[str] = (), renamed: Mapping[str, str] | None = None) -> ValueType[Any]:
    """Return the type of the words of a ``Literal``.

    ``renamed`` maps older spellings to the present ones. Words in ``rejected`` are read but not offered: the
    ``rejected_values`` of the property give the reason.
    """
    words: tuple[str, ...] = get_args(choices)

    def read(text: str) -> str:
        word = text.strip().lower()
        word = (renamed or {}).get(word, word)
        if word not in words and word not in rejected:
            raise ValueError
        return word

    return ValueType("one of " + ", ".join(words), read)


def set_of(*words: str) -> ValueType[frozenset[str]]:
    """Return the type of lists of words, separated by commas."""

    def read(text: str) -> frozenset[str]:
        found = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
        if not found <= set(words):
            raise ValueError
        return found

    return ValueType(f"a list of {', '.join(words)}, separated by commas", read, lambda found: ",".join(sorted(found)))


def matching(pattern: str, expects: str) -> ValueType[str]:
    """Return the type of texts that match a regular expression; blanks around them do not count."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text.strip()):
            raise ValueError
        return text.strip()

    return ValueType(expects, read)


DIRECTORY = matching("(?:[A-Za-z][A-Za-z0-9+.-]*:)?/.*", "an absolute path, or a URI such as s3a://bucket/path")
"""A relative path would name another directory, and nothing would be there, if a program starts elsewhere."""


TOPIC_PART = matching(r"[a-zA-Z0-9._-]+", "letters, digits, '.', '_' and '-' only")
"""A topic name or a part of one."""
