"""The jars that the consumer needs in addition to Spark's own, pinned in ``jars.toml``, for Spark 3.5 in another list.

``python -m tailrace.spark_consumer.jars FOLDER [SECTION ...]`` fetches them into a folder for ``SPARK_JARS``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.artifacts import Pins, download, read_pins

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
    parser = argparse.ArgumentParser(prog="python -m tailrace.spark_consumer.jars", description=__doc__)
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
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    if found is None:
        raise TailraceError("Java was not found", hint="install Java 17 or 21, or set JAVA_HOME")
    return Path(found)


if __name__ == "__main__":
    sys.exit(main())
