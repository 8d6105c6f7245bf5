"""Servers that are newer than any other public package has them, from a later release of Debian.

Nothing is installed: apt fetches the packages with lists of its own and checks them by Debian's signatures, they are
unpacked into a folder, and their programs run there with the loader and the libraries of their release. A release that
still changes has only the newest version of a package, so no version is pinned.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.embedded.java import EmbeddedServerError

_SOURCE: Final = re.compile(r"^(?:URIs:|deb)\s+(?:\[[^]\n]*\]\s+)?(\w+://[^/\s]+/debian)/?(?:\s|$)", re.MULTILINE)
"""An archive of Debian in a file of either form; others have its name deeper in their paths."""


def missing() -> str:
    """Return what this system lacks for packages of Debian; empty if it has all."""
    if tools := [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]:
        return f"{tools[0]}: it is no Debian"
    return "" if _keys() else "the keys of Debian: apt-get install debian-archive-keyring"


def unpack_package(name: str, release: str, folder: Path) -> None:
    """Fetch a package of ``release`` with all that it depends on, and unpack them into ``folder``."""
    if lacking := missing():
        raise EmbeddedServerError(f"{name} is a package of Debian, and this system lacks {lacking}", hint="use Debian")
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True)
    (apt / "status").touch()  # nothing is installed: the packages come with all libraries, the C library too
    (apt / "sources.list").write_text(f"deb [signed-by={_keys()}] {_archive()} {release} main\n", encoding="utf-8")
    options = {
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": os.devnull,
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Debug::NoLocking": "true",
        "Acquire::Languages": "none",
        "APT::Update::Error-Mode": "any",  # else a list that was not fetched is told by the next command
        "APT::Sandbox::User": "root",  # another user cannot write to the cache of root
    }
    command = ["apt-get", "-qq", *(f"-o{option}={value}" for option, value in options.items())]
    _run([*command, "update"])
    _run([*command, "install", "--download-only", "--no-install-recommends", "--yes", name])
    for package in (apt / "cache" / "archives").glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(package), str(folder)])
    shutil.rmtree(apt)


def write_launcher(folder: Path, program: str, *options: str) -> None:
    """Write ``bin/<name>``, which runs a program of an unpacked package with the loader and libraries of its release.

    The folder may be moved; ``$root`` in ``options`` is where it is.
    """
    [loader] = folder.glob("usr/lib/*-linux-gnu/ld-linux*.so.*")
    libraries = f"$root/{loader.parent.relative_to(folder)}:$root/usr/lib/mysql/private"
    words = [f"$root/{loader.relative_to(folder)}", "--library-path", libraries, f"$root/{program}", "$@", *options]
    launcher = folder / "bin" / Path(program).name
    launcher.parent.mkdir()
    launcher.write_text(
        '#!/bin/sh\nroot=$(cd "$(dirname "$0")/.." && pwd)\nexec ' + " ".join(f'"{word}"' for word in words) + "\n",
        encoding="utf-8",
    )
    launcher.chmod(0o755)


def _keys() -> Path | None:
    return next(Path("/usr/share/keyrings").glob("debian-archive-keyring.*"), None)


def _archive() -> str:
    """Return the archive of Debian that this system's apt uses, else the public one.

    The files are read, since apt names only archives whose lists it has fetched before.
    """
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    texts = (file.read_text(encoding="utf-8") for file in files if file.is_file())
    addresses = (match[1] for text in texts for match in _SOURCE.finditer(text))
    return next(addresses, "http://deb.debian.org/debian")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EmbeddedServerError(f"{command[0]} failed", hint="check the network", output=done.stderr.strip()[-2000:])
    return done.stdout
