"""The jars that the consumer needs in addition to Spark's own, pinned in ``jars.toml``.

``python -m tailrace.spark_consumer.jars FOLDER [SECTION ...]`` fetches them into a folder for ``SPARK_JARS``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.artifacts import Pins, download, read_pins

LIST: Final = Path(__file__).with_name("jars.toml")


def pins(sections: Sequence[str] = ()) -> Pins:
    """Return the pinned jars of ``sections``; of all sections without any."""
    known = read_pins(LIST)
    unknown = [name for name in sections if name not in known]
    if unknown:
        raise TailraceError(f"no jars are listed for {unknown[0]!r}", hint=f"choose from {', '.join(known)}")
    return {artifact: pin for name in sections or known for artifact, pin in known[name].items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the jars that are missing in a folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tailrace.spark_consumer.jars", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sections", nargs="*", metavar="section", help="sections of jars.toml (default: all)")
    options = parser.parse_args(arguments)
    try:
        missing = {
            artifact: pin
            for artifact, pin in pins(options.sections).items()
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
