"""Finds retired words in Python sources: in the names they define, in their file names, and in their text.

``python -m tests.docs.vocabulary`` lists all of them.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.glossary import in_name, in_text
from tests.docs.samples import ROOT

FOLDERS: Final = ("producer", "runtime", "schemas", "spark_consumer", "tests")
EXEMPT: Final = frozenset(
    {ROOT / "tests" / "docs" / name for name in ("glossary.py", "vocabulary.py", "test_pages.py", "test_vocabulary.py")}
)
"""Modules that are about the words themselves."""


class Finding(NamedTuple):
    """A retired word and where it is used."""

    path: Path
    line: int
    word: str
    used: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.word!r} in {self.used!r}"


def sources() -> Iterator[Path]:
    """Yield the Python files of the repository."""
    for folder in FOLDERS:
        yield from sorted(path for path in (ROOT / folder).rglob("*.py") if path not in EXEMPT)


def findings(path: Path) -> Iterator[Finding]:
    """Yield the retired words of one file."""
    text = path.read_text(encoding="utf-8")
    for part in path.relative_to(ROOT).with_suffix("").parts:
        yield from (Finding(path, 0, entry.word, part) for entry in in_name(part))
    for line, name in sorted(set(_defined(ast.parse(text)))):
        yield from (Finding(path, line, entry.word, name) for entry in in_name(name))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.STRING, tokenize.COMMENT}:
            yield from (Finding(path, token.start[0], entry.word, token.string) for entry in in_text(token.string))


def _defined(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


if __name__ == "__main__":
    found = [finding for path in sources() for finding in findings(path)]
    sys.stdout.write("".join(f"{finding}\n" for finding in found))
    sys.exit(1 if found else 0)
