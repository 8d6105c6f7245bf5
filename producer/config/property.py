"""What is known of one property: its name outside, its place inside, its type, and whether it has an effect here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tailrace.producer.config.filters import MessageKeys, compile_list, split_list


class Status(StrEnum):
    """What happens to a property that is given."""

    SUPPORTED = "honoured"
    """Has the effect that it has in Debezium, or that its description says."""
    ACCEPTED = "accepted"
    """Has no effect; a warning says why."""
    REJECTED = "refused"
    """Would change the records and is not there: a fault, unless the value asks for nothing."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of value: how the text is read, and what to tell somebody who wrote another."""

    expects: str
    read: Callable[[str], Any]
    """Raises ValueError; its text, where there is one, is told beside ``expects``."""


def _fixed(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


TEXT = ValueType("a text that is not empty", _fixed)
ANY = ValueType("any text", str)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


BOOLEAN = ValueType("true or false", _boolean)


def integer(least: int, most: int | None = None) -> ValueType:
    """Return the type of whole numbers within bounds, both included."""

    def read(text: str) -> int:
        number = int(text.strip(), 10)
        if number < least or (most is not None and number > most):
            raise ValueError
        return number

    return ValueType(
        f"a whole number from {least} to {most}" if most is not None else f"a whole number, at least {least}", read
    )


def decimal(least: float) -> ValueType:
    """Return the type of decimal fractions not below ``least``."""

    def read(text: str) -> float:
        number = float(text)
        if not least <= number < float("inf"):
            raise ValueError
        return number

    return ValueType(f"a number, at least {least:g}", read)


def one_of(*words: str, rejected: Sequence[str] = (), **same: str) -> ValueType:
    """Return the type of words out of a list; ``same`` maps older spellings to the present ones.

    Words in ``refused`` are read, for the property's ``later`` to say why they cannot be, and offered to nobody.
    """

    def read(text: str) -> str:
        word = text.strip().lower()
        word = same.get(word, word)
        if word not in words and word not in rejected:
            raise ValueError
        return word

    return ValueType("one of " + ", ".join(words), read)


def _expressions(text: str) -> str:
    compile_list(text)
    return text.strip()


EXPRESSIONS = ValueType("a list of regular expressions, separated by commas, each for the whole name", _expressions)


COLUMN_RULE = ValueType(EXPRESSIONS.expects, _expressions)
"""The same, where a part of the property's name is a setting too; ``column_rules.read_rule`` reads both."""


def _message_keys(text: str) -> str:
    MessageKeys.parse(text)
    return text.strip()


MESSAGE_KEYS = ValueType("a list as db.table:column,column;db.other:column", _message_keys)
NAMES = ValueType("a list separated by commas", split_list)


def _statements(text: str) -> tuple[str, ...]:
    # As in Debezium: ';' separates statements, ';;' is a semicolon within one.
    return tuple(part.strip().replace("\0", ";") for part in text.replace(";;", "\0").split(";") if part.strip())


STATEMENTS = ValueType("SQL statements separated by ';' (';;' for the character itself)", _statements)


def _topic_part(text: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", text.strip()):
        raise ValueError
    return text.strip()


TOPIC_PART = ValueType("letters, digits, '.', '_' and '-' only", _topic_part)


def _operations(text: str) -> frozenset[str]:
    found = frozenset(part.strip().lower() for part in text.split(","))
    if found == {"none"}:
        return frozenset()
    if not found <= {"c", "u", "d", "t"}:
        raise ValueError
    return found


OPERATIONS = ValueType("none, or letters out of c, u, d, t, separated by commas", _operations)


def words(*known: str) -> ValueType:
    """Return the type of lists of words, separated by commas, each out of a list."""

    def read(text: str) -> frozenset[str]:
        found = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
        if not found <= set(known):
            raise ValueError
        return found

    return ValueType("a list out of " + ", ".join(known) + ", separated by commas", read)


def _table_name(text: str) -> str:
    database, _, table = text.strip().partition(".")
    if not database or not table or "," in text:
        raise ValueError
    return text.strip()


TABLE_NAME = ValueType("one table as db.table", _table_name)


@dataclass(frozen=True, slots=True)
class Property:
    """One line of the table of properties.

    ``name`` may hold ``*`` for any text. ``place`` is ``section.attribute`` of ProducerConfig, set when honoured.
    """

    name: str
    meaning: str
    kind: ValueType = ANY
    default: str | None = None
    """The value that holds when none is given, as it would be written; None for none."""
    place: str = ""
    status: Status = Status.SUPPORTED
    reason: str = ""
    """Why it is accepted without effect, or refused; a whole clause."""
    harmless: tuple[str, ...] = ()
    """Values, in lower case, that ask for what happens anyway: neither warning nor fault."""
    later: Mapping[str, str] = field(default_factory=dict)
    """Values that are known but not there yet, each with the reason."""
    aliases: tuple[str, ...] = ()
    secret: bool = False
    required: bool = False
    debezium: str = ""
    """Debezium's default where ours is another."""
    in_environment: bool = True
    """False for names so short that the variable may well mean something else."""

    @property
    def open(self) -> bool:
        """Tell whether the name stands for many."""
        return "*" in self.name

    def matches(self, name: str) -> bool:
        """Tell whether a given name is this property, an alias, or one of the many it stands for."""
        if self.open:
            return re.fullmatch(".+".join(map(re.escape, self.name.split("*"))), name) is not None
        return name == self.name or name in self.aliases


def supported(name: str, place: str, kind: ValueType, default: str | None, meaning: str, **more: Any) -> Property:
    """Return a property that has an effect."""
    return Property(name, meaning, kind, default, place, **more)


def ignored(name: str, meaning: str, reason: str, **more: Any) -> Property:
    """Return a property that is taken without effect."""
    return Property(name, meaning, status=Status.ACCEPTED, reason=reason, **more)


def rejected(name: str, meaning: str, reason: str, *harmless: str, **more: Any) -> Property:
    """Return a property that is a fault unless its value is one of the harmless ones."""
    return Property(name, meaning, status=Status.REJECTED, reason=reason, harmless=harmless, **more)
