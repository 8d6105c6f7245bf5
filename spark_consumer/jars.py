"""The jars that the consumer needs in addition to Spark's own, pinned in ``jars.toml``, for Spark 3.5 in another list.

``python -m tailrace.spark_consumer.jars FOLDER [SECTION ...]`` fetches them into a folder for ``SPARK_JARS``.

Files come from the public Maven repository, and their SHA-256 is checked. A list is a TOML file with sections of lines
``"group:artifact:version[:classifier][@ext]" = "sha256"``. Apache Ivy transfers the files: its jar is part of PySpark,
and its defaults name the public repository.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

from tailrace.runtime.error_report import shown
from tailrace.runtime.errors import TailraceError

_REPORT_INTERVAL_S: Final = 5.0
_NETWORK_HINT: Final = "check the network; set a proxy by JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=HOST"

# Poms are not read: a list is complete and names every artifact once.
_SETTINGS: Final = """<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false" checksums=""/></resolvers>
</ivysettings>
"""

Report = Callable[[str], None]
"""Receives one line of progress."""


class DownloadError(TailraceError):
    """A pinned file could not be fetched, or its checksum differs."""


class Artifact(NamedTuple):
    """One file of a Maven repository."""

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
        """The file name in the repository."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{suffix}.{self.extension}"


Pins = Mapping[Artifact, str]
"""Artifact -> SHA-256 of its file, in hex."""


def read_pins(listing: Path) -> dict[str, Pins]:
    """Return the sections of a list."""
    sections = tomllib.loads(listing.read_text(encoding="utf-8"))
    return {
        section: {Artifact.parse(coordinates): pin for coordinates, pin in pins.items()}
        for section, pins in sections.items()
    }


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def download(pins: Pins, folder: Path, *, java: Path, report: Report) -> None:
    """Fetch ``pins`` into ``folder``. A file appears there only after its checksum was verified.

    Raises DownloadError if a file cannot be fetched or its SHA-256 differs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # On the same file system, so that a rename publishes a complete file.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as name:
        scratch = Path(name)
        fetch_unverified(tuple(pins), scratch, java=java, report=report)
        for artifact, pin in pins.items():
            fetched = fetched_file(scratch, artifact)
            seen = sha256(fetched)
            if seen != pin:
                raise DownloadError(
                    f"{artifact.file_name}: the SHA-256 differs from the pinned one",
                    hint="repeat the download; if it still differs, the public file was replaced: do not use it",
                    expected=pin,
                    seen=seen,
                )
            fetched.replace(folder / artifact.file_name)
    size = sum((folder / artifact.file_name).stat().st_size for artifact in pins)
    report(f"  {len(pins)} of {len(pins)} files, {size / 1e6:.0f} MB, checksums verified")


def fetched_file(scratch: Path, artifact: Artifact) -> Path:
    """Return the file of ``artifact`` that :func:`fetch_unverified` put under ``scratch``."""
    return scratch / "files" / artifact.group / artifact.file_name


def fetch_unverified(artifacts: Sequence[Artifact], scratch: Path, *, java: Path, report: Report) -> None:
    """Let Ivy fetch ``artifacts`` into ``scratch`` and report its progress. Raises DownloadError."""
    settings, module, log = scratch / "settings.xml", scratch / "ivy.xml", scratch / "ivy.log"
    settings.write_text(_SETTINGS, encoding="utf-8")
    module.write_text(_ivy_module(artifacts), encoding="utf-8")
    cache = scratch / "cache"
    command: list[str | Path] = [java, f"-Divy.default.ivy.user.dir={scratch}/home", "-jar", _ivy_jar()]
    command += ["-settings", settings, "-ivy", module, "-cache", cache]
    command += ["-retrieve", f"{scratch}/files/[organisation]/[artifact]-[revision](-[classifier]).[ext]"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            _wait(process, cache, len(artifacts), report)
        except BaseException:
            process.kill()
            raise
    missing = [each.file_name for each in artifacts if not fetched_file(scratch, each).is_file()]
    if process.returncode != 0 or missing:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.strip() for line in lines if "UNRESOLVED" in line or "ERROR" in line or "FAILED" in line]
        raise DownloadError(
            f"{len(missing)} of {len(artifacts)} files could not be fetched: {', '.join(missing[:4])}",
            hint=_NETWORK_HINT,
            ivy="; ".join(errors[:8]) or "; ".join(lines[-4:]),
        )


def _wait(process: subprocess.Popen[bytes], cache: Path, count: int, report: Report) -> None:
    due = time.monotonic() + _REPORT_INTERVAL_S
    while process.poll() is None:
        time.sleep(0.1)
        if time.monotonic() >= due:
            due += _REPORT_INTERVAL_S
            complete, size = _arrived(cache)
            report(f"  {complete} of {count} files, {size / 1e6:.0f} MB")


def _arrived(cache: Path) -> tuple[int, int]:
    """Return the complete files in Ivy's cache and the bytes of all, partial files included."""
    complete = size = 0
    for path in cache.rglob("*"):
        try:
            stat = path.stat()
        except FileNotFoundError:  # Ivy renamed it
            continue
        # Ivy keeps a file in <group>/<artifact>/<type>s/, next to its own notes in XML.
        if path.is_file() and path.suffix not in {".xml", ".properties", ".lck"}:
            size += stat.st_size
            complete += path.suffix != ".part"
    return complete, size


def _ivy_module(artifacts: Sequence[Artifact]) -> str:
    """Return an Ivy module that depends on exactly ``artifacts``."""
    modules: dict[tuple[str, str, str], list[str]] = {}
    for each in artifacts:
        extra = f" m:classifier={quoteattr(each.classifier)}" if each.classifier else ""
        kind = quoteattr(each.extension)
        file = f"<artifact name={quoteattr(each.name)} type={kind} ext={kind}{extra}/>"
        modules.setdefault((each.group, each.name, each.version), []).append(file)
    # Ivy takes the files of a module from one of its elements only.
    lines = [
        f"  <dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)}"
        f' transitive="false" conf="default->*">{"".join(files)}</dependency>'
        for (group, name, version), files in modules.items()
    ]
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '<info organisation="tailrace" module="pins"/>\n<configurations><conf name="default"/></configurations>\n'
        "<dependencies>\n" + "\n".join(lines) + "\n</dependencies>\n</ivy-module>\n"
    )


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise DownloadError("PySpark is not installed; its Ivy jar fetches files", hint="install tailrace[spark]")
    return found[-1]


LISTS: Final[Mapping[str, Path]] = {
    "4.1": Path(__file__).with_name("jars.toml"),
    "3.5": Path(__file__).with_name("jars-3.5.toml"),
}
"""The list of each Spark line."""


def installed_line() -> str:
    """Return the line of the PySpark that is installed, such as 4.1."""
    return ".".join(version("pyspark").split(".")[:2])


def pins(sections: Sequence[str] = (), *, line: str | None = None) -> Pins:
    """Return the pinned jars of ``sections``, of all sections without any; for the installed PySpark without a line."""
    line = line or installed_line()
    if line not in LISTS:
        raise TailraceError(f"no jars are listed for Spark {line}", hint=f"use Spark {', '.join(LISTS)}")
    known = read_pins(LISTS[line])
    unknown = [name for name in sections if name not in known]
    if unknown:
        raise TailraceError(f"no jars are listed for {unknown[0]!r}", hint=f"choose from {', '.join(known)}")
    return {artifact: pin for name in sections or known for artifact, pin in known[name].items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the jars that are missing in a folder; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tailrace.spark_consumer.jars", description="Fetch the jars for Spark into a folder."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("sections", nargs="*", metavar="section", help="sections of the list (default: all)")
    parser.add_argument("--spark", choices=sorted(LISTS), help="the Spark line (default: that of PySpark)")
    options = parser.parse_args(arguments)
    try:
        missing = {
            artifact: pin
            for artifact, pin in pins(options.sections, line=options.spark).items()
            if not (options.folder / artifact.file_name).is_file()
        }
        if missing:
            download(missing, options.folder, java=_java(), report=lambda line: print(line, file=sys.stderr))
    except TailraceError as error:
        sys.stderr.write(f"error: {shown(error)}\n")
        return 1
    return 0


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        where = f" in JAVA_HOME, {home}" if home else ""
        raise TailraceError(f"Java was not found{where}", hint="install Java 17 or 21, or set JAVA_HOME")
    return Path(found)


if __name__ == "__main__":
    sys.exit(main())
