"""Finds Java 17 or 21, and installs Debian packages that a server needs if this process may."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tailrace.runtime.errors import TailraceError
from tests.embedded.cache import locked

SUPPORTED: Final = (17, 21)
"""Major versions that run both Kafka 4.3 and Spark 4.1, the preferred one first."""

PACKAGE: Final = "openjdk-17-jre-headless"

LIBRARY_PACKAGES: Final = {"libaio.so.1": "libaio1", "libnuma.so.1": "libnuma1"}
"""Shared library -> Debian package."""


class EmbeddedServerError(TailraceError):
    """A test server or an artifact is not available on this machine."""


@functools.cache
def java_home() -> Path:
    """Return the home of a Java 17 or 21. Install one if none is found and this process may.

    Raises EmbeddedServerError with the command to run if it may not.
    """
    missing = f"Java {' or '.join(map(str, SUPPORTED))} was not found"
    install_unless((PACKAGE,), lambda: _search() is not None, why=missing)
    found = _search()
    if found is None:
        raise EmbeddedServerError(
            f"no Java {' or '.join(map(str, SUPPORTED))} on this machine",
            hint=f"run: {_install_command((PACKAGE,))}   (or set JAVA_HOME)",
        )
    return found


def java() -> Path:
    """Return the ``java`` executable of :func:`java_home`."""
    return java_home() / "bin" / "java"


def require_library(name: str) -> Path | None:
    """Make sure that a shared library (a key of LIBRARY_PACKAGES) is installed.

    Returns None if it loads under its name; else the file to link to that name: newer Debian and Ubuntu call the same
    library ``...t64``.
    """
    package = LIBRARY_PACKAGES[name]
    why = f"the system library {name} was not found"
    install_unless((package,), lambda: _loads(name) or _loads(f"{name}t64"), why=why)
    if _loads(name):
        return None
    if not _loads(f"{name}t64"):
        raise EmbeddedServerError(f"the system library {name} cannot be loaded", hint=_install_command((package,)))
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return next(Path(line.split()[-1]) for line in maps.splitlines() if f"/{name}t64" in line)


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def install_unless(packages: Sequence[str], installed: Callable[[], bool], *, why: str) -> None:
    """Install Debian packages unless ``installed()``. Processes that miss the same package install it once.

    Raises EmbeddedServerError with the command to run if this process is not root, or if the installation fails.
    """
    if installed():
        return
    command = _install_command(packages)
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise EmbeddedServerError(why, hint=f"run: {command}")
    # A second apt-get fails at once while the first one has the lists of packages.
    with locked("packages"):
        if installed():
            return
        sys.stderr.write(f"{why}; installing {' '.join(packages)}\n")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for step in ((apt, "-qq", "update"), (apt, "-qq", "install", "-y", "--no-install-recommends", *packages)):
            done = subprocess.run(step, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise EmbeddedServerError(
                    f"{why}, and installing it failed", hint=f"run: {command}", output=done.stderr.strip()[-2000:]
                )


def major_version(home: Path) -> int | None:
    """Return the major version of the Java at ``home``, None if there is none."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        # Some distributions ship no release file; running the program takes 50 ms.
        done = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=False)
        text = done.stderr
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _search() -> Path | None:
    """Return the first home with a supported version: JAVA_HOME, then PATH, then /usr/lib/jvm."""
    return next((home for home in _candidates() if major_version(home) in SUPPORTED), None)


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    homes = Path("/usr/lib/jvm")
    yield from sorted(homes.iterdir(), key=lambda home: home.name) if homes.is_dir() else ()


def _install_command(packages: Sequence[str]) -> str:
    return f"sudo apt-get update && sudo apt-get install -y {' '.join(packages)}"
