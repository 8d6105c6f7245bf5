"""In how many processes the tests run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import workers_plugin

ROOT = Path(__file__).parents[2]
LARGE = {"_cpus": 2.0, "_memory": 7 << 30}


def _workers(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], machine: dict[str, float]) -> int:
    monkeypatch.chdir(ROOT)
    for name, value in machine.items():
        monkeypatch.setattr(workers_plugin, name, lambda value=value: value)
    config: Any = SimpleNamespace(args=arguments, rootpath=ROOT)
    return workers_plugin.pytest_xdist_auto_num_workers(config)


@pytest.mark.parametrize(
    ("arguments", "machine", "expected"),
    [
        (["tests"], LARGE, 2),
        (["tests"], LARGE | {"_memory": 20 << 30}, 3),
        (["tests/unit", "tests/integration"], LARGE, 2),
        (["tests/unit", "tests/docs"], LARGE, 0),
        (["tests/spark", "tests/sinks"], LARGE, 0),
        (["tests/integration/test_faults.py"], LARGE, 0),
        (["tests/integration/test_faults.py::test_source_closes_every_connection"], LARGE, 0),
        (["tests"], LARGE | {"_cpus": 1.5}, 0),
        (["tests"], LARGE | {"_memory": 5 << 30}, 0),
    ],
)
def test_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], machine: dict[str, float], expected: int
) -> None:
    """Several for folders with servers, on a machine that has room for them."""
    assert _workers(monkeypatch, arguments, machine) == expected


def test_files_with_spark_alternate_with_others() -> None:
    """Those without servers come last. The order is otherwise the one of the collection."""
    items: list[Any] = [
        SimpleNamespace(nodeid=f"tests/{folder}/test_{name}.py::{name}", get_closest_marker=lambda _: None)
        for folder, name in (("unit", "a"), ("integration", "c"), ("integration", "b"), ("spark", "d"), ("sinks", "e"))
    ]
    workers_plugin.pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)  # type: ignore[arg-type]

    assert [item.nodeid[-1] for item in items] == ["d", "c", "e", "b", "a"]


@pytest.mark.parametrize(("memory", "expected"), [(20 << 30, "tests/spark/test_d.py"), (7 << 30, "spark")])
def test_all_spark_tests_share_a_session_without_memory_for_two(
    monkeypatch: pytest.MonkeyPatch, memory: int, expected: str
) -> None:
    """In one process."""
    monkeypatch.setattr(workers_plugin, "_memory", lambda: memory)
    monkeypatch.setattr("xdist.scheduler.loadscope.LoadScopeScheduling.__init__", lambda *_: None)
    config: Any = SimpleNamespace(option=SimpleNamespace(dist="loadfile"))
    scheduler: Any = workers_plugin.pytest_xdist_make_scheduler(config, None)

    assert scheduler._split_scope("tests/spark/test_d.py::d") == expected
    assert scheduler._split_scope("tests/integration/test_b.py::b") == "tests/integration/test_b.py"


def test_spark_outside_of_its_files_is_refused() -> None:
    """Two processes would both start a Spark session."""
    item: Any = SimpleNamespace(nodeid="tests/integration/test_a.py::a", get_closest_marker=lambda name: name)

    with pytest.raises(pytest.UsageError, match=r"test_a\.py::a starts Spark"):
        workers_plugin.pytest_collection_modifyitems(SimpleNamespace(), [item])  # type: ignore[arg-type]
