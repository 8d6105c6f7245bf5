"""What an ALTER TABLE does to columns, from the words of its actions.

Only what decides the values of the rows that exist is read. An action that is not known here concerns no column. A
definition with more than its first words understood is still safe: a type or a default that is not understood is
reported as unknown, and the caller then reads the rows again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from tailrace.producer.model.ddl import ColumnAction, ColumnDefinition
from tailrace.producer.mysql.text.sql_tokens import REPLACED, SqlDialect, Token, tokens

_MENTIONS_COLUMNS: Final = re.compile(r"\b(?:add|drop|rename|change|modify|convert)\b", re.IGNORECASE)
_MAX_LENGTH: Final = 1 << 18
"""A longer statement is not read: it counts as one that changes the values of all columns. So does one whose names of
columns or defaults have bytes that are no text."""
_NOT_A_COLUMN: Final = frozenset(
    ["INDEX", "KEY", "CONSTRAINT", "UNIQUE", "FULLTEXT", "SPATIAL", "PRIMARY", "FOREIGN", "CHECK", "PARTITION"]
)
_TYPES: Final = {
    **{name: name for name in ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double")},
    **{name: name for name in ("char", "varchar", "binary", "varbinary", "date", "datetime", "timestamp", "time")},
    **{name: name for name in ("year", "bit", "enum", "set", "json")},
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), "blob"),
    "integer": "int",
    "int4": "int",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "int8": "bigint",
    "middleint": "mediumint",
    "bool": "tinyint",
    "boolean": "tinyint",
    "numeric": "decimal",
    "dec": "decimal",
    "fixed": "decimal",
    "real": "double",
    "float4": "float",
    "float8": "double",
}
_TEXT_BYTES: Final = {"TINYTEXT": "255", "TEXT": "65535", "MEDIUMTEXT": "16777215", "LONGTEXT": "4294967295"}
_AS_BINARY: Final = frozenset({("SET", "BINARY"), ("CHARSET", "BINARY")})
"""A character set that makes a text type a binary one, as the word BYTE does."""
_KEEP_ROWS: Final = (
    *((action, kind) for action in ("ADD", "DROP", "RENAME") for kind in ("INDEX", "KEY")),
    ("DROP", "FOREIGN", "KEY"),
    ("DROP", "CHECK"),
    ("DROP", "CONSTRAINT"),
    ("ENGINE", "=", "INNODB"),
    ("ENGINE", "INNODB"),
    *(
        (word,)
        for word in ("ADD", "MODIFY", "CHANGE", "ALTER", "COMMENT", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE")
    ),
    *((word,) for word in ("AUTO_INCREMENT", "ROW_FORMAT", "KEY_BLOCK_SIZE", "COMPRESSION", "ENCRYPTION", "FORCE")),
    *((word,) for word in ("STATS_PERSISTENT", "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "ALGORITHM", "LOCK")),
)
"""Beginnings of actions that keep all rows unless they go on with a word of the next list; the longer ones first."""
_MAY_LOSE_ROWS: Final = frozenset(
    {"UNIQUE", "PRIMARY", "KEY", "SERIAL", "CHECK", "CONSTRAINT", "FOREIGN", "REFERENCES"}
    | {"SPATIAL", "PARTITION", "ENGINE", "CONVERT"}
)
"""Words of constraints, and of what may follow an option without a comma; no name is one of the reserved ones."""
_MAY_FAIL: Final = frozenset({("(", "("), (",", "("), ("PERIOD", "FOR"), ("PERIOD", "IF")})
"""How a key part begins that is an expression, and what a period begins with, whose end is behind its start."""
_SYMBOLS: Final = {"0": "\0", "'": "'", '"': '"', "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "\\": "\\"}
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def column_actions(sql: str, dialect: SqlDialect) -> tuple[ColumnAction, ...]:
    """Return what an ALTER TABLE statement does to columns, in its order."""
    if _MENTIONS_COLUMNS.search(sql) is None:
        return ()
    if len(sql) > _MAX_LENGTH:
        return (ColumnAction("modify", ""),)
    found = tuple(action for part in _actions(sql, dialect) for action in _Action(sql, part, dialect).read())
    if dialect.has_replaced and any(map(_has_replaced, found)):
        return (ColumnAction("modify", ""),)
    return found


def keeps_rows(sql: str, dialect: SqlDialect) -> bool:
    """Return whether a table that an ALTER TABLE gave its definition has all rows that INSERT IGNORE copies to it.

    Invariant: every action is known to leave no row out, whatever the rows are. DROP of a column does not: it may have
    been part of a unique index. What the columns then have is not decided here: ``column_actions`` tells it.
    """
    return len(sql) <= _MAX_LENGTH and all(map(_keeps_rows, _actions(sql, dialect)))


def _keeps_rows(action: list[Token]) -> bool:
    words = tuple(token.word for token in action)
    head = next((head for head in _KEEP_ROWS if words[: len(head)] == head), None)
    return head is not None and _MAY_LOSE_ROWS.isdisjoint(words[len(head) :]) and _MAY_FAIL.isdisjoint(pairwise(words))


def _has_replaced(action: ColumnAction) -> bool:
    default = action.definition.default if action.definition is not None else None
    return REPLACED in action.column + action.old + (default or "")


def _actions(sql: str, dialect: SqlDialect) -> Iterator[list[Token]]:
    """Yield the tokens of each action."""
    first, *others = _split(list(tokens(sql, dialect)))
    yield _without_head(first)
    yield from others


def _without_head(action: list[Token]) -> list[Token]:
    """Return the first action without ``ALTER TABLE name``."""
    at = next((index for index, token in enumerate(action) if token.word == "TABLE"), len(action)) + 1
    while at < len(action) and action[at].word in {"IF", "EXISTS"}:
        at += 1
    at += 3 if at + 1 < len(action) and action[at + 1].word == "." else 1
    if at < len(action) and action[at].word in {"WAIT", "NOWAIT"}:  # MariaDB: WAIT seconds
        at += 2 if action[at].word == "WAIT" else 1
    return action[at:]


class _Action:
    """The tokens of one action, read from its start."""

    def __init__(self, sql: str, found: list[Token], dialect: SqlDialect) -> None:
        self._sql = sql
        self._dialect = dialect
        self._tokens = found
        self._at = 0

    def read(self) -> list[ColumnAction]:
        """Return the column actions of the action."""
        if self._take("ADD"):
            return self._add()
        if self._take("DROP"):
            if not self._begins_column():
                return []
            self._skip_if()
            name = self._name()
            return [ColumnAction("drop", name)] if name else []
        if self._take("RENAME"):
            return self._rename() if self._take("COLUMN") else []
        if self._take("CHANGE"):
            self._take("COLUMN")
            self._skip_if()
            old, new = self._name(), self._name()
            renamed = [ColumnAction("rename", new, old)] if old.lower() != new.lower() or old != new else []
            return [*renamed, ColumnAction("modify", new, old, self._definition(self._rest()))]
        if self._take("MODIFY"):
            self._take("COLUMN")
            self._skip_if()
            name = self._name()
            return [ColumnAction("modify", name, name, self._definition(self._rest()))]
        if self._take("CONVERT") and not self._peek("PARTITION", "TABLE"):
            return [ColumnAction("convert", "")]
        return []

    def _add(self) -> list[ColumnAction]:
        if not self._begins_column():
            return []
        may_exist = self._skip_if()
        listed = self._take("(")
        parts = [part for part in _split(self._rest()) if not listed or _is_column(part)]
        names = [part[0].name if part else "" for part in parts]
        if may_exist:  # then the statement changes neither its type nor its values
            return [ColumnAction("modify", name, name) for name in names if name]
        return [
            ColumnAction("add", name, definition=self._definition(part[1:]))
            for name, part in zip(names, parts, strict=True)
            if name
        ]

    def _rename(self) -> list[ColumnAction]:
        self._skip_if()
        old = self._name()
        self._take("TO", "AS", "=")
        new = self._name()
        return [ColumnAction("rename", new, old)] if old and new else []

    def _definition(self, found: Sequence[Token]) -> ColumnDefinition:
        words = [token.word for token in found]
        data_type = _TYPES.get(words[0].lower(), "") if words else ""
        arguments: list[str] = []
        labels: tuple[str, ...] | None = ()
        if data_type and words[1:2] == ["("]:
            end = words.index(")") if ")" in words else len(words)
            arguments = [word for word in words[2:end] if word.isdigit()]
            labels = self._labels(found[2:end]) if data_type in {"enum", "set"} else ()
        elif data_type == "text":
            arguments = [_TEXT_BYTES[words[0]]]
        if "BYTE" in words or not _AS_BINARY.isdisjoint(pairwise(words)):
            data_type = ""
        unsigned = not {"UNSIGNED", "ZEROFILL"}.isdisjoint(words)
        nullable = not any(pair == ("NOT", "NULL") for pair in pairwise(words))
        nullable = nullable and not ("KEY" in words and "PRIMARY" in words)
        computed = not {"GENERATED", "AUTO_INCREMENT", "SERIAL"}.isdisjoint(words) or "AS" in words
        default: str | None = None
        if "DEFAULT" in words:
            default, understood = self._default(found[words.index("DEFAULT") + 1 :])
            computed = computed or not understood
        return ColumnDefinition(data_type, tuple(arguments), unsigned, nullable, default, computed, labels)

    def _labels(self, found: Sequence[Token]) -> tuple[str, ...] | None:
        """Return the labels of ENUM or SET as the server stores them; None if one is no plain literal."""
        labels = []
        for part in _split(found):
            text = self._sql[part[0].start : part[0].stop] if len(part) == 1 else ""
            if text[:1] not in {"'", '"'} or (text[0] == '"' and self._dialect.ansi_quotes):
                return None
            labels.append(self._unquoted(text).rstrip(" "))
        return None if self._dialect.has_replaced and REPLACED in "".join(labels) else tuple(labels)

    def _default(self, found: Sequence[Token]) -> tuple[str | None, bool]:
        """Return the text of a literal default, and whether the default is a literal."""
        sign = ""
        if found and found[0].word in {"-", "+"}:
            sign = found[0].word.replace("+", "")
            found = found[1:]
        if not found:
            return None, False
        first = found[0]
        if first.word in {"TRUE", "FALSE"}:
            return str(int(first.word == "TRUE")), True
        if first.word == "NULL":
            return None, True
        if first.word == "B" and len(found) > 1 and found[1].start == first.stop:
            bits = self._sql[found[1].start : found[1].stop].strip("'").lstrip("0")
            return f"b'{bits or '0'}'", True
        end = first.stop
        for token in found[1:]:  # 1.5 is three tokens
            if token.start != end or (token.word != "." and not token.word.isdigit()):
                break
            end = token.stop
        text = self._sql[first.start : end]
        if _NUMBER.fullmatch(text):
            return sign + text, True
        if not first.word and text[:1] in {"'", '"'} and not (text[0] == '"' and self._dialect.ansi_quotes):
            following = found[1].word if len(found) > 1 else None
            return self._unquoted(text), following != ""  # 'a' 'b' is one literal
        return None, False

    def _unquoted(self, text: str) -> str:
        inner = text[1:-1].replace(text[0] * 2, text[0])
        if not self._dialect.backslash_escapes:
            return inner
        return re.sub(r"\\(.)", lambda found: _SYMBOLS.get(found[1], found[1]), inner, flags=re.DOTALL)

    def _begins_column(self) -> bool:
        """Take COLUMN; return whether a column follows."""
        return self._take("COLUMN") or _is_column(self._rest())

    def _skip_if(self) -> bool:
        """Skip the IF EXISTS or IF NOT EXISTS of MariaDB: no name is one of these words without quotes."""
        found = False
        while self._take("IF", "NOT", "EXISTS"):
            found = True
        return found

    def _rest(self) -> list[Token]:
        return self._tokens[self._at :]

    def _peek(self, *words: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].word in words

    def _take(self, *words: str) -> bool:
        found = self._peek(*words)
        self._at += found
        return found

    def _name(self) -> str:
        name = self._tokens[self._at].name if self._at < len(self._tokens) else ""
        self._at += bool(name)
        return name


def _is_column(found: Sequence[Token]) -> bool:
    """Return whether what follows ADD or DROP concerns a column."""
    first, second, third = (*(token.word for token in found[:3]), "", "", "")[:3]
    if first == "SYSTEM":
        return second != "VERSIONING"
    if first == "PERIOD":
        return second not in {"FOR", "IF"}
    if first != "VECTOR":
        return first not in _NOT_A_COLUMN
    # An index has names in its parentheses, a type has numbers or literals.
    opening = [second, third].index("(") + 1 if "(" in {second, third} else 0
    inside = found[opening + 1] if opening and len(found) > opening + 1 else None
    return second not in {"INDEX", "KEY", "IF", "("} and (inside is None or not inside.name or inside.word.isdigit())


def _split(found: Sequence[Token]) -> list[list[Token]]:
    """Return what commas outside parentheses separate, up to a closing parenthesis that was not opened here."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += (token.word == "(") - (token.word == ")")
        if depth < 0:
            break
        if token.word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
