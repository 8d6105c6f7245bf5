r"""Which databases, tables and columns are captured, by the same lists of regular expressions as Debezium.

A list is separated by commas, ``\,`` is a comma within an expression, blanks around an expression do not count. An
expression must match the whole of ``db``, ``db.table`` or ``db.table.column``, without regard to the case of ASCII
letters. The expressions are Java's; where Python's would mean something else they are refused, never reinterpreted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tailrace.producer.model.table import Column, TableId

BUILT_IN_DATABASES = frozenset({"mysql", "performance_schema", "sys", "information_schema"})

# Java's \w, \d, \s and its case-insensitivity know ASCII only; re.ASCII makes Python's the same.
_FLAGS = re.IGNORECASE | re.ASCII

_OTHER_ESCAPES = {
    "p": "a class by property",
    "P": "a class by property",
    "Q": "quoting",
    "E": "quoting",
    "h": "horizontal white space",
    "H": "horizontal white space",
    "v": "vertical white space",
    "V": "vertical white space",
    "R": "a line break",
    "X": "a grapheme",
    "N": "a character by name",
    "G": "the end of the last match",
    "Z": "the end of the input",
    "z": "the end of the input",
    "c": "a control character",
    "e": "the escape character",
    "k": "a reference by name",
    "0": "an octal number",
}


class FilterFault(ValueError):  # noqa: N818 - one fault among the many that a ConfigError lists
    """An expression cannot be used; the text says which and why."""


def split_list(text: str) -> tuple[str, ...]:
    r"""Cut a list at its commas; ``\,`` becomes a comma, other escapes stay, empty parts are dropped."""
    parts = re.findall(r"(?:\\.|[^,\\])+", text, re.DOTALL)
    if len(text) - len(text.rstrip("\\")) & 1:
        raise FilterFault(f"{text!r} ends in the middle of an escape")
    return tuple(part.strip().replace("\\,", ",") for part in parts if part.strip())


def compile_expression(expression: str) -> re.Pattern[str]:
    """Compile one Java regular expression; raise FilterFault where Python's re has no equal for it."""
    difference = _java_only(expression)
    if difference:
        raise FilterFault(f"{expression!r} uses {difference}, which is not supported: write it in plainer terms")
    try:
        return re.compile(expression, _FLAGS)
    except (re.error, OverflowError) as error:
        raise FilterFault(f"{expression!r} is not a regular expression: {error}") from None


def _java_only(expression: str) -> str:
    """Name the first construct that Java reads in another way than Python, or return ''."""
    in_class = False
    at = 0
    while at < len(expression):
        char, rest = expression[at], expression[at:]
        if char == "\\":
            if rest[1:2] in _OTHER_ESCAPES:
                return f"{rest[:2]} ({_OTHER_ESCAPES[rest[1]]})"
            if rest.startswith("\\x{"):
                return "\\x{…} (a character by number)"
            at += 1
        elif in_class:
            if char == "[" or rest.startswith("&&"):
                return "a class within a class, or an intersection of classes (&&)"
            in_class = char != "]"
        elif char == "[":
            in_class = True
            at += rest.startswith("[^")
            if expression.startswith("]", at + 1):
                return "']' as the first member of a class"
        elif rest.startswith("(?") and (found := _java_group(rest, first=at == 0)):
            return found
        at += 1
    return ""


def _java_group(rest: str, *, first: bool) -> str:
    if re.match(r"\(\?<[A-Za-z]", rest):
        return "a group with a name, (?<name>…)"
    if rest.startswith("(?P"):
        return "(?P…), which Java does not know"
    flags = re.match(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])", rest)
    if flags and (set(flags[1]) - {"i", "s", "m"} or (flags[3] == ")" and not first)):
        return f"the flags {flags[0]} there"
    return ""


def compile_list(text: str) -> tuple[re.Pattern[str], ...]:
    """Compile every expression of a list."""
    return tuple(compile_expression(part) for part in split_list(text))


def any_matches(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    """Tell whether one of the expressions matches the whole name."""
    return any(pattern.fullmatch(name) for pattern in patterns)


class _Selector:
    """One pair of include and exclude lists; an object, so that filters can be sent to another process."""

    def __init__(self, include: str, exclude: str) -> None:
        self._wanted = compile_list(include)
        self._unwanted = compile_list(exclude)

    def __call__(self, name: str) -> bool:
        if self._wanted:
            return any_matches(self._wanted, name)
        return not any_matches(self._unwanted, name)


class TableFilter:
    """Decides on databases and tables; every answer about a table is remembered.

    Raises FilterFault when an expression cannot be used. A pair of include and exclude of one kind is refused before,
    in producer/config.
    """

    def __init__(
        self,
        *,
        database_include: str = "",
        database_exclude: str = "",
        table_include: str = "",
        table_exclude: str = "",
        ignore_built_in: bool = True,
    ) -> None:
        self._ignored = BUILT_IN_DATABASES if ignore_built_in else frozenset()
        self._database = _Selector(database_include, database_exclude)
        self._table = _Selector(table_include, table_exclude)
        self._known: dict[TableId, bool] = {}

    def wanted_database(self, database: str) -> bool:
        """Tell whether tables of this database can be captured at all."""
        return database.lower() not in self._ignored and self._database(database)

    def wanted(self, table: TableId) -> bool:
        """Tell whether a table is captured."""
        known = self._known.get(table)
        if known is None:
            known = self.wanted_database(table.database) and self._table(f"{table.database}.{table.table}")
            self._known[table] = known
        return known


class ColumnFilter:
    """Decides on columns of captured tables, by ``db.table.column``."""

    def __init__(self, *, include: str = "", exclude: str = "") -> None:
        self._column = _Selector(include, exclude)
        self.trivial = not split_list(include) and not split_list(exclude)
        """Every column is wanted."""
        self._text = f"column.include.list={include}" if split_list(include) else f"column.exclude.list={exclude}"

    def __str__(self) -> str:
        return self._text

    def wanted(self, table: TableId, column: str) -> bool:
        """Tell whether a column of a captured table is captured."""
        return self._column(f"{table.database}.{table.table}.{column}")


@dataclass(frozen=True, slots=True)
class MessageKeys:
    """``message.key.columns``: other key columns for some tables, as ``db.table:c1,c2;regex.table:c3``."""

    expressions: tuple[re.Pattern[str], ...] = field(default=())
    """One for each column named, matching the whole of ``db.table.column``."""
    entries: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...] = field(default=())
    """For each entry its text and the expressions that it was made into."""

    @classmethod
    def parse(cls, text: str) -> MessageKeys:
        """Read the property's text; raise FilterFault when an entry has another form."""
        entries: list[tuple[str, tuple[re.Pattern[str], ...]]] = []
        for entry in filter(str.strip, text.split(";")):
            if not re.fullmatch(r"\s*[^:]+:[^:,]+(,[^:,]+)*\s*", entry):
                raise FilterFault(f"{entry.strip()!r} is not of the form db.table:column,column")
            table, _, columns = entry.partition(":")
            made = tuple(compile_expression(f"{table.strip()}.{column.strip()}") for column in columns.split(","))
            entries.append((entry.strip(), made))
        return cls(tuple(each for _, made in entries for each in made), tuple(entries))

    def faults(self, table: TableId, names: Sequence[str]) -> list[str]:
        """Return one text for each entry that names some columns of a table, and others that it has not."""
        found = []
        for text, expressions in self.entries:
            met = [any(each.fullmatch(f"{table}.{name}") for name in names) for each in expressions]
            if any(met) and not all(met):
                missing = [part for part, here in zip(text.partition(":")[2].split(","), met, strict=True) if not here]
                found.append(
                    f"message.key.columns: {text!r} names columns that {table} does not have: "
                    f"{', '.join(map(str.strip, missing))}"
                )
        return found

    def idle(self, columns: Iterable[tuple[TableId, Column]]) -> list[str]:
        """Return the entries that name none of these columns, fit to be shown."""
        names = [f"{table}.{column.name}" for table, column in columns]
        return [
            f"message.key.columns={text}"
            for text, expressions in self.entries
            if not any(any_matches(expressions, name) for name in names)
        ]

    def columns(self, table: TableId, names: Iterable[str]) -> tuple[str, ...]:
        """Return the key columns given for a table in the order they are given, or () when none is."""
        every = tuple(names)
        found: dict[str, None] = {}
        for expression in self.expressions:
            for name in every:
                if expression.fullmatch(f"{table.database}.{table.table}.{name}"):
                    found[name] = None
        return tuple(found)
