"""Fetches the fixed list of server packages and jars once, checks their SHA-256 and keeps them in a cache.

``artifacts.toml`` lists them in sections: ``"group:artifact:version[:classifier][@ext]" = "sha256"``.
Apache Ivy does the transfer: its jar comes with pyspark, and its defaults know where public artifacts are.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple
from xml.sax.saxutils import quoteattr

from tests.embedded.java import EmbeddedServerError, java

LIST = Path(__file__).with_name("artifacts.toml")

# Poms are not read: the list is complete, and names no artifact that another would replace.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false" checksums=""/></resolvers>
</ivysettings>
"""


class Artifact(NamedTuple):
    """One file of a public repository, by its coordinates."""

    group: str
    name: str
    version: str
    classifier: str = ""
    extension: str = "jar"

    @classmethod
    def parse(cls, text: str) -> Artifact:
        """Read ``group:artifact:version[:classifier][@ext]``."""
        coordinates, _, extension = text.partition("@")
        parts = coordinates.split(":")
        if len(parts) not in {3, 4} or not all(parts):
            raise ValueError(f"not group:artifact:version[:classifier][@ext]: {text!r}")
        return cls(parts[0], parts[1], parts[2], parts[3] if len(parts) == 4 else "", extension or "jar")

    @property
    def file_name(self) -> str:
        """The name under which repositories keep it."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{tail}.{self.extension}"


def cache_dir() -> Path:
    """Return the cache folder: TAILRACE_CACHE, else XDG_CACHE_HOME/tailrace, else ~/.cache/tailrace."""
    if named := os.environ.get("TAILRACE_CACHE"):
        folder = Path(named)
    elif xdg := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(xdg) / "tailrace"
    else:
        folder = Path.home() / ".cache" / "tailrace"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch(section: str, *, listing: Path = LIST) -> list[Path]:
    """Return the files of one section of a list, in its order, transferring those that the cache lacks.

    Raises EmbeddedServerError where one cannot be had or its SHA-256 differs.
    """
    pins = _section(section, listing)
    folder = cache_dir() / "artifacts" / section
    paths = [folder / artifact.file_name for artifact in pins]
    if all(path.is_file() for path in paths):
        return paths
    with locked(f"artifacts-{section}"):
        missing = {artifact: pin for artifact, pin in pins.items() if not (folder / artifact.file_name).is_file()}
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            _transfer(missing, folder, section=section)
    return paths


def unpack_once(name: str, unpack: Callable[[Path], None]) -> Path:
    """Return the cache folder ``name``, filled by ``unpack`` the first time; it appears whole or not at all."""
    target = cache_dir() / name
    if not target.is_dir():
        with locked(name.replace("/", "-")):
            if not target.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                with _scratch() as scratch:
                    unpack(scratch)
                    scratch.rename(target)
    return target


def unpack_tar(stream: IO[bytes], folder: Path) -> None:
    """Unpack a gzipped tar into ``folder``, whatever its members' names try."""
    with tarfile.open(fileobj=stream, mode="r:gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python before 3.11.4, as Debian 12 has it; the archive's checksum is pinned
            archive.extractall(folder)  # noqa: S202


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name``, so that two processes do not do the same work."""
    locks = cache_dir() / "locks"
    locks.mkdir(exist_ok=True)
    with (locks / name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Give a folder on the cache's own file system, removed afterwards unless renamed."""
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=cache_dir()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _section(section: str, listing: Path) -> dict[Artifact, str]:
    listed = tomllib.loads(listing.read_text(encoding="utf-8"))
    if section not in listed:
        raise EmbeddedServerError(
            f"no artifacts are listed for {section!r}", hint=f"choose one of {', '.join(sorted(listed))}"
        )
    return {Artifact.parse(coordinates): pin for coordinates, pin in listed[section].items()}


def _transfer(wanted: dict[Artifact, str], folder: Path, *, section: str) -> None:
    """Bring ``wanted`` into ``folder``; each file appears there only after its checksum was found right."""
    sys.stderr.write(f"fetching {len(wanted)} artifact(s) for {section} into {folder} ...\n")
    with _scratch() as scratch:
        _run_ivy(tuple(wanted), scratch)
        for artifact, pin in wanted.items():
            fetched = scratch / "files" / artifact.group / artifact.file_name
            if not fetched.is_file():
                raise EmbeddedServerError(
                    f"{artifact.file_name} of {artifact.group} could not be fetched",
                    hint="check the network, or a proxy by JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...",
                )
            seen = sha256(fetched)
            if seen != pin:
                fetched.unlink()
                raise EmbeddedServerError(
                    f"{artifact.file_name} does not have the SHA-256 that is listed; it was removed",
                    hint="run again; if it stays so, the public file was replaced: do not trust it",
                    expected=pin,
                    seen=seen,
                )
            fetched.replace(folder / artifact.file_name)
            sys.stderr.write(f"  {artifact.file_name}\n")


def _run_ivy(artifacts: Sequence[Artifact], scratch: Path) -> None:
    """Let Ivy put ``artifacts`` under ``scratch/files/<group>/``."""
    settings, module, log = scratch / "settings.xml", scratch / "ivy.xml", scratch / "ivy.log"
    settings.write_text(_SETTINGS, encoding="utf-8")
    module.write_text(_ivy_module(artifacts), encoding="utf-8")
    command: list[str | Path] = [java(), f"-Divy.default.ivy.user.dir={scratch}/home", "-jar", _ivy_jar()]
    command += ["-settings", settings, "-ivy", module, "-cache", scratch / "cache"]
    command += ["-retrieve", f"{scratch}/files/[organisation]/[artifact]-[revision](-[classifier]).[ext]"]
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=output, check=False)
    if done.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line.strip() for line in lines if "UNRESOLVED" in line or "ERROR" in line or "FAILED" in line]
        raise EmbeddedServerError(
            "artifacts could not be fetched",
            hint="check the network, or a proxy by JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...",
            ivy="; ".join(told[:8]) or "; ".join(lines[-4:]),
        )


def _ivy_module(artifacts: Sequence[Artifact]) -> str:
    """Write the module description that depends on exactly ``artifacts``."""
    lines = []
    for each in artifacts:
        extra = f" m:classifier={quoteattr(each.classifier)}" if each.classifier else ""
        lines.append(
            f"  <dependency org={quoteattr(each.group)} name={quoteattr(each.name)} rev={quoteattr(each.version)}"
            f' transitive="false" conf="default->*">'
            f"<artifact name={quoteattr(each.name)} type={quoteattr(each.extension)} ext={quoteattr(each.extension)}"
            f"{extra}/></dependency>"
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '<info organisation="tailrace" module="embedded"/>\n<configurations><conf name="default"/></configurations>\n'
        "<dependencies>\n" + "\n".join(lines) + "\n</dependencies>\n</ivy-module>\n"
    )


def _ivy_jar() -> Path:
    """Return the Ivy jar that pyspark carries."""
    spec = find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise EmbeddedServerError("pyspark, whose Ivy fetches artifacts, is not installed", hint="run: ./run setup")
    return found[-1]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _print_pins(coordinates: Sequence[str]) -> None:
    """Print list lines for new artifacts, with the checksums that are served now."""
    artifacts = [Artifact.parse(text) for text in coordinates]
    with _scratch() as scratch:
        _run_ivy(artifacts, scratch)
        for text, artifact in zip(coordinates, artifacts, strict=True):
            print(f'"{text}" = "{sha256(scratch / "files" / artifact.group / artifact.file_name)}"')


def _copy(section: str, folder: Path) -> None:
    """Put the files of a section into ``folder``, for an image to carry them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in fetch(section):
        shutil.copy2(path, folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["copy"] and len(sys.argv) == 4:
        _copy(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1:2] == ["pin"]:
        _print_pins(sys.argv[2:])
    else:
        sys.exit("usage: python -m tests.embedded.artifacts copy SECTION FOLDER | pin COORDINATES...")
