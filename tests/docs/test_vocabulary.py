"""Sources use the vocabulary of docs/glossary.md."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.samples import ROOT
from tests.docs.vocabulary import findings, sources


def test_sources_use_no_retired_word() -> None:
    """Neither in names nor in docstrings, comments and messages."""
    assert [str(finding) for path in sources() for finding in findings(path)] == []


def test_retired_words_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In names that are defined, in the file's name and in text, not in names that are only used."""
    monkeypatch.setattr("tests.docs.vocabulary.ROOT", tmp_path)
    source = tmp_path / "desk.py"
    source.write_text('"""Mend it."""\n\nfrom other import place\n\n\ndef ask(limit):\n    return place(limit)\n')

    assert [(finding.line, finding.word) for finding in findings(source)] == [(0, "desk"), (6, "ask"), (1, "mend")]


@pytest.mark.parametrize("half", ["producer", "spark_consumer"])
def test_a_class_name_has_one_meaning(half: str) -> None:
    """No two public classes of a half, and of what both halves share, have the same name."""
    names = Counter(
        node.name
        for folder in (half, "schemas", "runtime")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert len(names) > 50
    assert [name for name, count in names.items() if count > 1] == []
