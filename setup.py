"""Maps the folders at the top to the packages of the namespace ``tailrace``; everything else is in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

# An image that carries one half has no folder for the other.
PARTS = [part for part in ("producer", "runtime", "schemas", "spark_consumer") if Path(part).is_dir()]

setup(
    packages=[
        package
        for part in PARTS
        for package in (f"tailrace.{part}", *(f"tailrace.{part}.{name}" for name in find_packages(part)))
    ],
    package_dir={f"tailrace.{part}": part for part in PARTS},
)
