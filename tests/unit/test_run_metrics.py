"""The metrics of a run of ``tailrace verify``, as Prometheus reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.spark_consumer.verify.run_metrics import DIFFERENT, EQUAL, FAILED, RunMetrics, VerifiedTable
from tailrace.spark_consumer.verify.tables import compare_each

RESULTS = {
    "p.shop.a": VerifiedTable(EQUAL, 10, 4096),
    "p.shop.b": VerifiedTable(DIFFERENT, 20, 4096, {"missing": 2, "extra": 0, "different": 1}, 3),
}


def samples(file: Path) -> dict[tuple[str, ...], float]:
    """Return the samples by name and labels."""
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def compared(topic: str) -> VerifiedTable:
    """Return a result, or fail."""
    if topic not in RESULTS:
        raise TailraceError("no target", hint="start the query")
    return RESULTS[topic]


def test_a_run_tells_each_table_and_when_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "verify.prom"

    with capture_logs() as logs:
        code = compare_each([*RESULTS, "p.shop.c"], compared, file)

    assert code == DIFFERENT
    assert [each["topic"] for each in logs] == ["p.shop.c"]
    found = samples(file)
    assert found.pop(("tailrace_verify_last_run_timestamp_seconds",)) > 1e9
    times = {name: found.pop(name) for name in list(found) if name[0].endswith("_seconds")}
    assert {name[1:] for name in times} == {(), ("p.shop.a",), ("p.shop.b",), ("p.shop.c",)}
    of_tables = {(name[0].removeprefix("tailrace_verify_"), *name[1:]): value for name, value in found.items()}
    expected: dict[tuple[str, ...], float] = {
        ("tables", "equal"): 1,
        ("tables", "different"): 1,
        ("tables", "failed"): 1,
        **{("table_failed", topic): float(topic == "p.shop.c") for topic in (*RESULTS, "p.shop.c")},
        **{("table_rows", f"p.shop.{name}"): value for name, value in (("a", 10), ("b", 20), ("c", 0))},
        **{("table_ranges", f"p.shop.{name}"): value for name, value in (("a", 4096), ("b", 4096), ("c", 0))},
        **{("table_not_decided", f"p.shop.{name}"): value for name, value in (("a", 0), ("b", 3), ("c", 0))},
        ("table_differences", "missing", "p.shop.b"): 2,
        ("table_differences", "different", "p.shop.b"): 1,
    }
    assert of_tables == expected
    assert list(tmp_path.iterdir()) == [file]


def test_so_many_tables_have_samples_that_those_which_differ_are_among_them(tmp_path: Path) -> None:
    run = RunMetrics()
    for number in range(1500):
        run.add(f"p.d.t{number}", VerifiedTable(EQUAL), 1)
    run.add("p.d.z", VerifiedTable(FAILED), 1)

    run.write(tmp_path / "verify.prom")

    found = samples(tmp_path / "verify.prom")
    assert len([name for name in found if name[0] == "tailrace_verify_table_rows"]) == 1000
    assert found["tailrace_verify_table_failed", "p.d.z"] == 1
    assert found["tailrace_verify_tables", "equal"] == 1500


def test_a_file_that_cannot_be_written_is_an_error_before_tables_are_compared_or_in_the_exit_code(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="its folder does not exist"):
        compare_each(["p.shop.a"], lambda _: pytest.fail("compared"), tmp_path / "no" / "verify.prom")

    (tmp_path / "folder").mkdir()
    with capture_logs() as logs:
        assert compare_each(["p.shop.a"], compared, tmp_path / "folder") == FAILED
    assert [each["event"] for each in logs] == ["the metrics are not written"]
