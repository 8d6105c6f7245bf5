"""The cache of server packages and jars: each pinned file is fetched once, checked and kept.

``artifacts.toml`` pins the servers; ``spark_consumer/jars.toml`` pins the jars of Spark.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tailrace.spark_consumer.jars import (
    Artifact,
    Pins,
    download,
    fetch_unverified,
    fetched_file,
    read_pins,
    sha256,
)
from tests.embedded.cache import cache_dir, locked
from tests.embedded.java import EmbeddedServerError, java

LIST = Path(__file__).with_name("artifacts.toml")


class _Prepared:
    """The entries of the cache that this process has asked for, and whether it may ask for others."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._sealed = False

    def use(self, name: str) -> None:
        """Note an entry. Raises EmbeddedServerError if it is a new one after :func:`seal`."""
        if self._sealed and name not in self._names:
            raise EmbeddedServerError(
                f"{name} was not prepared before the first test",
                hint="mark the test with what it starts: mysql, postgresql, mariadb, kafka, spark, registry, "
                "iceberg_rest or debezium",
            )
        self._names.add(name)

    def seal(self) -> None:
        """Refuse entries that were not used before."""
        self._sealed = True


_prepared = _Prepared()
seal = _prepared.seal


def fetch(section: str, *, listing: Path = LIST) -> list[Path]:
    """Return the files of one section of a list, in its order. Files that the cache lacks are fetched."""
    sections = read_pins(listing)
    if section not in sections:
        raise EmbeddedServerError(
            f"no artifacts are listed for {section!r}", hint=f"choose one of {', '.join(sorted(sections))}"
        )
    return fetch_pins(section, sections[section])


def fetch_pins(name: str, pins: Pins) -> list[Path]:
    """Return the files of ``pins``, kept in the cache under ``artifacts/<name>``.

    Raises DownloadError if a file cannot be fetched or its SHA-256 differs.
    """
    _prepared.use(name)
    folder = cache_dir() / "artifacts" / name
    paths = [folder / artifact.file_name for artifact in pins]
    if all(path.is_file() for path in paths):
        return paths
    with locked(f"artifacts-{name}"):
        missing = {artifact: pin for artifact, pin in pins.items() if not (folder / artifact.file_name).is_file()}
        if missing:
            _report(f"fetching {len(missing)} file(s) for {name} into {folder}")
            download(missing, folder, java=java(), report=_report)
    return paths


def unpack_once(name: str, unpack: Callable[[Path], None]) -> Path:
    """Return the cache folder ``name``. The first call fills it by ``unpack``; it appears only when complete."""
    _prepared.use(name)
    target = cache_dir() / name
    if not target.is_dir():
        with locked(name.replace("/", "-")):
            if not target.is_dir():
                _report(f"preparing {name}")
                target.parent.mkdir(parents=True, exist_ok=True)
                with _scratch() as scratch:
                    unpack(scratch)
                    scratch.rename(target)
    return target


def unpack_tar(stream: IO[bytes], folder: Path) -> None:
    """Unpack a gzipped tar; members cannot escape from ``folder``."""
    with tarfile.open(fileobj=stream, mode="r:gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python before 3.11.4, as in Debian 12; the archive's checksum is pinned
            archive.extractall(folder)  # noqa: S202


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a folder on the cache's file system; remove it afterwards unless it was renamed."""
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=cache_dir()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _print_pins(coordinates: Sequence[str]) -> None:
    """Print list lines for new artifacts, with the checksums of what the repository serves now."""
    artifacts = [Artifact.parse(text) for text in coordinates]
    with _scratch() as scratch:
        fetch_unverified(artifacts, scratch, java=java(), report=_report)
        for text, artifact in zip(coordinates, artifacts, strict=True):
            print(f'"{text}" = "{sha256(fetched_file(scratch, artifact))}"')


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.embedded.artifacts COORDINATES...")
    _print_pins(sys.argv[1:])
