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

PRODUCER_LEVELS = (
    {"takeover", "verify"},
    {"app"},
    {"signals"},
    {"notifications"},
    {"snapshot"},
    {"streaming"},
    {"serialization"},
    {"ops", "kafka", "config"},
    {"mariadb"},
    {"mysql"},
    {"native"},
    {"model"},
)
"""Packages of the producer from top to bottom: a package imports those of its own level and below."""

MEMBER_LEVELS = {
    "config": (
        {"__main__"},
        {"reference"},
        {"definition"},
        {"sections", "checks"},
        {"column_transforms", "java_client", "value_types"},
        {"filters"},
    ),
    "mysql": (
        {"source"},
        {"log_monitor"},
        {"catalog_session", "file_resume", "prerequisites", "snapshot_session"},
        {"key_rows"},
        {"catalog", "result_stream", "resume", "split_sql", "watermark"},
        {"column_defaults", "condition", "file_offset", "key_order"},
        {"offset"},
        {"engine_commits"},
        {"binlog", "xa_commits"},
        {"connection", "types"},
        {"authentication", "gtid", "password", "session_variables", "text"},
        {"gtid_intervals"},
    ),
}
"""Modules and packages within a package of the producer, from top to bottom: one imports those below, and itself."""


def imported(source: str, *, members: bool = False) -> Iterator[str]:
    """Yield the dotted name of every import in a module, also of those inside functions.

    ``members``: and with it the names that are imported from it, which may be modules.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if members:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
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


@pytest.mark.parametrize("package", [package for level in PRODUCER_LEVELS for package in sorted(level)])
def test_packages_of_the_producer_import_downwards(package: str) -> None:
    level = next(at for at, packages in enumerate(PRODUCER_LEVELS) if package in packages)
    above = set().union(*PRODUCER_LEVELS[:level])
    prefix = f"{NAMESPACE}.producer."
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / "producer" / package).rglob("*.py*"))
        if path.suffix in {".py", ".pyi"}
        for name in imported(path.read_text(encoding="utf-8"))
        if name.startswith(prefix) and name.removeprefix(prefix).partition(".")[0] in above
    ]

    assert wrong == []


def test_every_package_of_the_producer_has_a_level() -> None:
    packages = {path.parent.name for path in (ROOT / "producer").glob("*/__init__.py")}

    assert packages == set().union(*PRODUCER_LEVELS)


@pytest.mark.parametrize("package", MEMBER_LEVELS)
def test_members_of_a_package_import_downwards(package: str) -> None:
    folder, prefix = ROOT / "producer" / package, f"{NAMESPACE}.producer.{package}."
    level = {member: at for at, members in enumerate(MEMBER_LEVELS[package]) for member in members}
    files = sorted(set(folder.rglob("*.py")) - {folder / "__init__.py"})
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for own in [path.relative_to(folder).parts[0].removesuffix(".py")]
        for name in imported(path.read_text(encoding="utf-8"), members=True)
        if name.startswith(prefix)
        for other in [name.removeprefix(prefix).partition(".")[0]]
        if other != own and level[other] <= level[own]
    ]

    assert wrong == []
    assert {path.relative_to(folder).parts[0].removesuffix(".py") for path in files} == set(level)


def test_no_module_of_the_producer_imports_itself_by_way_of_others() -> None:
    """Imports for types and inside functions count too."""
    paths = {".".join((NAMESPACE, *path.relative_to(ROOT).with_suffix("").parts)): path for path in _producer()}
    left = {
        module: {name for name in imported(path.read_text(encoding="utf-8"), members=True) if name in paths}
        for module, path in paths.items()
    }
    while free := {module for module, names in left.items() if not names & left.keys()}:
        left = {module: names for module, names in left.items() if module not in free}

    assert left == {}


def _producer() -> list[Path]:
    return [path for path in sorted((ROOT / "producer").rglob("*.py")) if path.name != "__init__.py"]


def test_only_the_loader_imports_the_extension() -> None:
    """Other modules take it from the loader, which knows whether it is used; its types are for the type checker."""
    extension = f"{NAMESPACE}.producer.native.codec"
    found = set()
    for path in _producer():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = [ast.Pass()]
        if extension in imported(ast.unparse(tree), members=True):
            found.add(path.relative_to(ROOT / "producer").as_posix())

    assert found == {"native/loader.py"}


SOURCE_MODULES = {
    "producer/app/connection_settings.py": "constructs the source from the configuration",
    "producer/mariadb/": "is a member of the family",
    "producer/takeover/": "reads the offset of a Debezium MySQL connector",
}
"""What may know that the source is MySQL, besides ``producer/mysql``, and why. All else uses ``model/protocols.py``."""

TYPE_MODULES = "producer/serialization/"
"""The codec calls the functions of the type families: it may import ``producer/mysql/types``, and no more."""

DRIVERS = {"pymysql", "pymysqlreplication"}


def _knows_mysql(path: str, name: str) -> bool:
    package = f"{NAMESPACE}.producer.mysql"
    if name.startswith(f"{NAMESPACE}.producer.mariadb"):
        return True
    if name.partition(".")[0] in DRIVERS:
        return True
    if path.startswith(TYPE_MODULES) and name.startswith(f"{package}.types."):
        return False
    return name == package or name.startswith(f"{package}.")


def test_only_the_mysql_package_knows_mysql() -> None:
    """Streaming, snapshots and serialization use the protocols of a source."""
    wrong = [
        f"{path} imports {name}"
        for file in sorted((ROOT / "producer").rglob("*.py"))
        for path in [file.relative_to(ROOT).as_posix()]
        for name in imported(file.read_text(encoding="utf-8"))
        if _knows_mysql(path, name) and not path.startswith(("producer/mysql/", *SOURCE_MODULES))
    ]

    assert wrong == []
