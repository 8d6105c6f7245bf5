"""Builds the extension with the sanitizers of GCC into a temporary folder, and runs the fuzzer with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tailrace.producer import native

_ROOT: Final = Path(__file__).resolve().parents[2]
_FLAGS: Final = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"
FOLDER: Final = "TAILRACE_FUZZ_EXTENSION"
"""The environment variable with the folder of the extension that the fuzzer uses."""


def use_extension(folder: str) -> None:
    """Import the extension from another folder than the package's own."""
    native.__path__.insert(0, folder)
    from tailrace.producer.native import codec  # noqa: PLC0415 - from that folder

    assert Path(codec.__file__).parent == Path(folder), f"{codec.__file__} was imported before"


def run_sanitized(jobs: Sequence[Sequence[str]]) -> int:
    """Build the extension, and run ``python -m tests.fuzz`` with it, once for each list of arguments, side by side.

    Returns the greatest exit code.
    """
    compiler = os.environ.get("CC", "gcc")
    runtime = _output([compiler, "-print-file-name=libasan.so"])
    if not os.path.isabs(runtime):
        sys.stderr.write(f"{compiler} has no libasan.so; install GCC with its sanitizers, or set CC\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="tailrace-fuzz-") as made:
        flags = {"CC": compiler, "CFLAGS": _FLAGS, "LDFLAGS": _FLAGS}
        built, objects = Path(made, "lib"), Path(made, "objects")
        command = [
            sys.executable,
            "setup.py",
            "-q",
            "build_ext",
            "--build-lib",
            str(built),
            "--build-temp",
            str(objects),
        ]
        subprocess.run(command, cwd=_ROOT, env={**os.environ, **flags}, check=True)
        extension = next(built.rglob("codec*.so"), None)
        if extension is None:
            sys.stderr.write("the extension could not be built with the sanitizers\n")
            return 2
        environment = {
            **os.environ,
            "LD_PRELOAD": str(Path(runtime).resolve()),
            # Each object of Python has a block of its own, so that a read beyond it is seen. Python never frees some.
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=64:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            FOLDER: str(extension.parent),
        }
        command = [sys.executable, "-m", "tests.fuzz"]
        running = [subprocess.Popen([*command, *arguments], cwd=_ROOT, env=environment) for arguments in jobs]
        return max(abs(each.wait()) for each in running)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
