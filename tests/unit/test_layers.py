"""Which package may import which: the halves share the contract and the runtime, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "tailrace"
ALLOWED = {
    "schemas": {"schemas"},
    "runtime": {"runtime"},
    "producer": {"producer", "runtime", "schemas"},
    "spark_consumer": {"spark_consumer", "runtime", "schemas"},
}
"""Top folder -> the parts of the namespace that its modules may import."""


def imported(source: str) -> Iterator[str]:
    """Yield the dotted name of every import in a module, also of those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def parts_imported(path: Path) -> Iterator[str]:
    """Yield the parts of the namespace that a module imports; a top folder imported by its own name counts too."""
    for name in imported(path.read_text(encoding="utf-8")):
        head, *rest = name.split(".")
        if head == NAMESPACE:
            yield rest[0] if rest else NAMESPACE
        elif head in ALLOWED or head == "tests":
            yield f"{head}, which must be imported as {NAMESPACE}.{head}"


@pytest.mark.parametrize("part", ALLOWED)
def test_part_imports_only_what_it_may(part: str) -> None:
    files = sorted((ROOT / part).rglob("*.py"))
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in parts_imported(path)
        if name not in ALLOWED[part]
    ]

    assert files
    assert wrong == []


def test_imports_inside_functions_are_seen() -> None:
    assert list(imported("def f():\n    import producer.x\n    from tailrace.spark_consumer import y\n")) == [
        "producer.x",
        "tailrace.spark_consumer",
    ]
