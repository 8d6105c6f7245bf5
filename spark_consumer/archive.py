"""Builds the archive for ``spark-submit --py-files``: the packages of the consumer with their entry points, in one zip.

    python -m tailrace.spark_consumer.archive [FILE]

The archive has the packages ``tailrace.spark_consumer``, ``tailrace.schemas`` and ``tailrace.runtime``. It has no
third-party packages: the Python of the driver must have orjson, prometheus-client, pydantic, structlog and tornado,
for a pipeline file pyyaml, and pyspark comes from SPARK_HOME. Executors need no packages, because no Python runs per
row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

PARTS: Final = ("runtime", "schemas", "spark_consumer")
NAMESPACE: Final = "tailrace"
DEFAULT_NAME: Final = "tailrace-spark.zip"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Time of every entry, so that the same code gives the same archive."""


def build(target: Path) -> None:
    """Write the archive; replaces an existing file."""
    info = distribution(NAMESPACE)
    entries: dict[PurePosixPath, bytes] = {}
    for part in PARTS:
        entries |= dict(_files(files(f"{NAMESPACE}.{part}"), PurePosixPath(NAMESPACE, part)))
    # importlib.metadata finds entry points in archives too; without them no sink would be installed.
    metadata = PurePosixPath(f"{NAMESPACE}-{info.version}.dist-info")
    for name in ("METADATA", "entry_points.txt"):
        entries[metadata / name] = (info.read_text(name) or "").encode()
    folders = {parent for path in entries for parent in path.parents if parent.name}
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        # Python finds a namespace package in an archive by the entry of its folder.
        for folder in sorted(folders):
            archive.writestr(ZipInfo(f"{folder}/", _EPOCH), b"")
        for path, content in sorted(entries.items()):
            entry = ZipInfo(str(path), _EPOCH)
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, content)


def _files(folder: Traversable, name: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    for member in folder.iterdir():
        if member.is_dir() and member.name != "__pycache__":
            yield from _files(member, name / member.name)
        elif member.is_file() and not member.name.endswith(".pyc"):
            yield name / member.name, member.read_bytes()


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_NAME))
