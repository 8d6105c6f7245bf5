"""A pytest plugin: the tests that start servers run in several processes, if the machine is large enough for them.

Each process starts servers of its own, and runs whole files, so that the fixtures of a module are made once. Files that
start Spark alternate with others, whose tests mostly wait. Without memory for two sessions, one process has them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from xdist.scheduler.loadscope import LoadScopeScheduling

CPUS: Final = 2
"""Processors that several processes need. Three have work for two, as tests of servers wait a third of their time."""

_GB: Final = 1 << 30
MEMORY: Final[Mapping[int, int]] = {3: 18 * _GB, 2: 6 * _GB}
"""Bytes of memory that so many processes with their servers need: three with a Spark session each, two with one."""

MEMORY_OF_SESSIONS: Final = 12 * _GB
"""Bytes of memory for a Spark session in each process."""

_WITHOUT_SERVERS: Final = ("tests/unit", "tests/docs")
"""Folders whose tests take seconds: a second process would only cost its start."""

_SPARK: Final = ("tests/spark/", "tests/sinks/", "tests/integration/test_demo", "tests/integration/test_embedded.py")
"""Where tests start Spark."""

_IN_ONE_PROCESS: Final = (*_WITHOUT_SERVERS, "tests/spark", "tests/sinks")
"""Folders that gain nothing by a second process if nothing else runs."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for ``-n auto``; 0 runs the tests in this one."""
    if not any(_can_be_shared(Path(argument), config.rootpath) for argument in config.args):
        return 0
    if _cpus() < CPUS:
        return 0
    return next((count for count, memory in MEMORY.items() if _memory() >= memory), 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Distribute files in the order of the collection; None: as the options say."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling  # noqa: PLC0415 - only the distributing process needs it

    config.option.loadscopereorder = False
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = _file if _memory() >= MEMORY_OF_SESSIONS else _file_or_spark
    return scheduler


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes: Spark first, because it takes longest, in turns with others; last what takes no time.

    The latter keeps both processes busy to the end. The order is otherwise the random one.
    Raises UsageError if a test starts Spark that the processes would not know of.
    """
    for item in items:
        if item.get_closest_marker("spark") and not item.nodeid.startswith(_SPARK):
            raise pytest.UsageError(f"{item.nodeid} starts Spark: name its file in _SPARK of {__name__}")
    if hasattr(config, "workerinput"):
        places = _places([_file(item.nodeid) for item in items])
        items.sort(key=lambda item: places[_file(item.nodeid)])


def _file(nodeid: str) -> str:
    return nodeid.split("::", maxsplit=1)[0]


def _file_or_spark(nodeid: str) -> str:
    return "spark" if nodeid.startswith(_SPARK) else _file(nodeid)


def _places(files: Sequence[str]) -> dict[str, tuple[bool, float, bool]]:
    """Return what the files are sorted by: a share of those with Spark is followed by the same share of the others."""
    kinds: dict[tuple[bool, bool], list[str]] = {}
    for each in dict.fromkeys(files):
        kinds.setdefault((each.startswith(_WITHOUT_SERVERS), each.startswith(_SPARK)), []).append(each)
    return {
        each: (quick, number / len(alike), not spark)
        for (quick, spark), alike in kinds.items()
        for number, each in enumerate(alike)
    }


def _can_be_shared(argument: Path, root: Path) -> bool:
    """Whether an argument of pytest is a folder with tests that a second process can share; a single file is not."""
    folder = (Path.cwd() / argument).resolve()
    if not folder.is_dir():
        return False
    return not any(folder.is_relative_to(root / each) for each in _IN_ONE_PROCESS)


def _cpus() -> float:
    """Return the processors that this process may use."""
    usable = float(len(os.sched_getaffinity(0)))
    quota, period = _words("/sys/fs/cgroup/cpu.max", "max 1")
    return usable if quota == "max" else min(usable, int(quota) / int(period))


def _memory() -> int:
    """Return the bytes that this process may use."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    [limit] = _words("/sys/fs/cgroup/memory.max", "max")
    return available if limit == "max" else min(available, int(limit))


def _words(path: str, otherwise: str) -> Iterable[str]:
    """Return the words of a file of the control group, ``otherwise`` if the group has none."""
    try:
        return Path(path).read_text(encoding="ascii").split()
    except OSError:
        return otherwise.split()
