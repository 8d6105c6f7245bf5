"""Sources use the vocabulary of docs/glossary.md."""

from __future__ import annotations

from pathlib import Path

import pytest

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
