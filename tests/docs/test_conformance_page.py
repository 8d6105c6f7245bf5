"""The table of sinks and cases in docs/sinks/tested.md is complete, and claims only what has passed."""

from __future__ import annotations

from tailrace.spark_consumer.sink.plugin import installed_sinks
from tests.sinks.conformance_results import PAGE, cases, cell, code_of, digest, shape_suites, suites, table, with_table
from tests.support.conformance_plugin import Results, read_results


def test_page_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == with_table(page, read_results()), "run: python -m tests.sinks.conformance_results"


def test_every_installed_sink_has_a_suite() -> None:
    assert {suite.backend_type.sink for suite in suites().values()} == set(installed_sinks())


def test_results_are_those_of_the_suite() -> None:
    found = suites() | shape_suites()

    for label, results in read_results().items():
        assert label in found
        assert set(results) <= set(cases())


def test_results_of_earlier_code_are_counted() -> None:
    delta = suites()["delta"]
    passed = set(cases()) - delta.not_applicable.keys()

    def said(code: str) -> list[str]:
        own = {case: {"code": digest(delta, case), "sink": code, "outcome": "passed"} for case in passed}
        [line] = [line for line in table({"delta": own}).splitlines() if line.startswith("| `delta` |")]
        return line.split(" | ")[1:3]

    assert said(code_of("delta")) == [str(len(passed)), "all"]
    assert said(code_of("iceberg")) == [str(len(passed)), "0"]


def test_only_a_passed_case_with_the_present_code_is_claimed() -> None:
    """Cells of the Delta sink, by their results."""
    delta = suites()["delta"]
    own = {case: digest(delta, case) for case in cases()}

    def said(results: Results, case: str) -> str:
        return cell(results, "delta", delta, case, [])

    insert = own["test_insert"]
    assert said({}, "test_insert") == "not run"
    assert said({"delta": {"test_insert": {"code": "other", "outcome": "passed"}}}, "test_insert") == "not run"
    assert said({"delta": {"test_insert": {"code": insert, "outcome": "failed"}}}, "test_insert") == "fails"
    assert said({"delta": {"test_insert": {"code": insert, "outcome": "passed"}}}, "test_insert") == "yes"
    changed = {"delta": {"test_type_change": {"code": own["test_type_change"], "outcome": "passed"}}}
    assert said(changed, "test_type_change") == "differs (1)"
    assert f"| {len(cases())} |" not in table({})
