"""The layers inside spark_consumer: a module imports only modules of its own package or of a lower layer."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "tailrace.spark_consumer"
LAYERS = (
    {"app", "cli", "reload", "verify"},
    {"query", "session"},
    {"config", "pipeline"},
    {"tables"},
    {"sink"},
    {"streams", "transform"},
    {"changes", "evolution", "normalize"},
    {"source"},
    {
        "archive",
        "errors",
        "files",
        "images",
        "in_driver",
        "jars",
        "java_errors",
        "jvm",
        "monitor",
        "small_data",
        "spark_line",
    },
)
"""Modules and packages of each layer, the highest layer first."""

WITHIN_A_LAYER = {
    *(("cli", name) for name in ("app", "reload", "verify")),
    *((name, "app") for name in ("reload", "verify")),
    *((name, "jvm") for name in ("files", "in_driver")),
    ("errors", "java_errors"),
    ("files", "errors"),
}
"""Imports between two members of one layer: importer, imported."""


def layer(name: str) -> int:
    """Return the number of the layer of a module or package."""
    [found] = [number for number, members in enumerate(LAYERS) if name in members]
    return found


def imports(path: Path) -> set[str]:
    """Return the modules and packages of spark_consumer that a module imports, also in functions and for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[2] for name in names if name.startswith(f"{PACKAGE}.")}
    return found


def test_consumer_imports_point_downwards() -> None:
    folder = ROOT / "spark_consumer"
    # The package itself exports the library.
    files = sorted(set(folder.rglob("*.py")) - {folder / "__init__.py"})
    modules = [(path, path.relative_to(folder).parts[0].removesuffix(".py")) for path in files]
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path, name in modules
        for other in sorted(imports(path) - {name})
        if layer(other) <= layer(name) and (name, other) not in WITHIN_A_LAYER
    ]

    assert wrong == []


def test_each_member_has_one_layer() -> None:
    folder = ROOT / "spark_consumer"
    members = {path.name.removesuffix(".py") for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}

    assert sorted(members - {"__init__", "__pycache__"}) == sorted(member for each in LAYERS for member in each)


def test_only_one_module_uses_what_spark_3_5_lacks() -> None:
    """The streams of the library are not for Spark 3.5."""
    lacking = ("pyspark.logger", ".try_cast(", "VariantType", "getQueryContext", ".lastProgress")
    folder = ROOT / "spark_consumer"
    files = [path for path in sorted(folder.rglob("*.py")) if path.name != "spark_line.py"]
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in lacking
        if name in path.read_text(encoding="utf-8")
    ]

    assert wrong == []
