"""Builds the archive for ``spark-submit --py-files``: the consumer, the contract and the runtime as one zip file.

``python -m tailrace.spark_consumer.archive FILE``. The libraries of tailrace[spark] are not part of it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("tailrace.runtime", "tailrace.schemas", "tailrace.spark_consumer")
_SKIPPED_SUFFIXES: Final = {".pyc", ".pyo"}
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the same sources give the same archive."""


def build(target: Path) -> list[str]:
    """Write the archive and return the names of its files."""
    files = {name: path.read_bytes() for package in _PACKAGES for name, path in _files(package)} | _metadata()
    folders = {f"{parent}/" for name in files for parent in Path(name).parents if parent.name}
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        # Python finds a namespace package in a zip file only by an entry of its folder.
        for folder in sorted(folders):
            archive.writestr(zipfile.ZipInfo(folder, _EPOCH), b"")
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return sorted(files)


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the archive name and the path of every file of a package, package data included."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    root = Path(module.__file__).parent
    for path in root.rglob("*"):
        if path.is_file() and path.suffix not in _SKIPPED_SUFFIXES:
            yield f"{package.replace('.', '/')}/{path.relative_to(root).as_posix()}", path


def _metadata() -> dict[str, bytes]:
    """Return the metadata of the distribution: plug-ins are found by its entry points."""
    installed = distribution("tailrace")
    folder = f"tailrace-{installed.version}.dist-info"
    texts = {name: installed.read_text(name) for name in ("METADATA", "entry_points.txt")}
    return {f"{folder}/{name}": text.encode() for name, text in texts.items() if text is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the archive and print its name and size."""
    parser = argparse.ArgumentParser(prog="python -m tailrace.spark_consumer.archive", description=__doc__)
    parser.add_argument("file", type=Path)
    target: Path = parser.parse_args(arguments).file
    count = len(build(target))
    print(f"{target}: {count} files, {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
