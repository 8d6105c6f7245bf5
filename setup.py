"""Maps the folders at the top to the packages of the namespace ``tailrace``, and builds the optional extension.

Everything else is in pyproject.toml. Without Cython or a compiler there is no extension, and the rest is installed.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

# An image that carries one half has no folder for the other.
PARTS = [part for part in ("producer", "runtime", "schemas", "spark_consumer") if Path(part).is_dir()]
NATIVE = Path("producer/native")


def extensions() -> list[Extension]:
    """Return the extension, which setuptools leaves out if it cannot be compiled."""
    if cythonize is None or not NATIVE.is_dir():
        return []
    extension = Extension(
        "tailrace.producer.native.codec",
        [str(NATIVE / "codec.pyx")],
        depends=sorted(map(str, NATIVE.glob("*.pxi"))),
        extra_compile_args=[] if os.name == "nt" else ["-O3"],
    )
    found: list[Extension] = cythonize([extension], build_dir="build/cython", quiet=True)
    for each in found:
        each.optional = True  # cythonize returns new objects without it
    return found


setup(
    ext_modules=extensions(),
    packages=[
        package
        for part in PARTS
        for package in (f"tailrace.{part}", *(f"tailrace.{part}.{name}" for name in find_packages(part)))
    ],
    package_dir={f"tailrace.{part}": part for part in PARTS},
)
