"""The halves know only the contract: producer and spark_consumer never import each other, schemas imports neither."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = [
    ("producer", {"spark_consumer"}),
    ("spark_consumer", {"producer"}),
    ("schemas", {"producer", "spark_consumer"}),
]


def imported(source: str) -> Iterator[str]:
    """Yield the top-level package of every import in a module, also of those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@pytest.mark.parametrize(("package", "forbidden"), FORBIDDEN)
def test_package_does_not_import_other_half(package: str, forbidden: set[str]) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imported(path.read_text(encoding="utf-8"))
        if name in forbidden
    ]

    assert files
    assert wrong == []


def test_imports_inside_functions_are_seen() -> None:
    assert list(imported("def f():\n    import producer.x\n    from spark_consumer import y\n")) == [
        "producer",
        "spark_consumer",
    ]
