"""Each row of the table of failures in the guarantees has a test that shows it."""

from __future__ import annotations

import ast
from functools import cache
from typing import Final

import pytest

from tests.docs.samples import ROOT

PAGE: Final = ROOT / "docs" / "guarantees.md"

SHOWN_BY: Final = {
    "the producer is killed": [
        "integration/test_faults.py::test_kill_during_the_snapshot",
        "integration/test_faults.py::test_repeated_kills_while_changes_stream",
        "integration/test_signals.py::test_killed_during_an_incremental_snapshot",
        "integration/test_signals_recovery.py::test_signal_of_the_table_is_applied_once_across_crashes",
    ],
    "MySQL or Kafka is unreachable": [
        "integration/test_faults.py::test_source_closes_every_connection",
        "integration/test_bad_input.py::test_unreachable_source",
        "integration/test_faults.py::test_broker_restarts_while_changes_stream",
        "integration/test_bad_input.py::test_unreachable_kafka",
    ],
    "MySQL falls silent without closing its connections": [
        "integration/test_binlog_connection.py::test_stopped_server_is_silent",
        "integration/test_source_vanishes.py::test_capture_continues_when_a_query_is_never_answered",
    ],
    "the binlog was purged": [
        "integration/test_binlog_connection.py::test_purged_position_is_reported_with_a_hint",
        "integration/test_snapshot_modes.py::test_when_needed_reads_the_tables_after_binlog_loss",
    ],
    "the source is another server of the same history": [
        "integration/test_resume.py::test_failover_during_a_snapshot",
        "integration/test_resume.py::test_transaction_continues_on_a_replica_that_applies_it_later",
        "integration/test_resume_position.py::test_reset_of_the_binlog_begins_an_epoch",
    ],
    "the source has no GTIDs": ["integration/test_without_gtids.py::test_the_position_resumes_on_its_server_only"],
    "the source has not executed transactions that were read": [
        "integration/test_resume_position.py::test_missing_transactions_are_named"
    ],
    "the source lost the end of its binlog in a crash": [
        "integration/test_resume_position.py::test_file_that_lost_its_end_is_an_error"
    ],
    "the target of a table is restored to an earlier state": [
        "sinks/test_restored_targets.py::test_older_copy_of_a_target_gets_what_it_lacks",
        "sinks/test_restored_targets.py::test_restored_delta_table_goes_on_with_the_ledger_of_the_version",
    ],
    "a second consumer writes to the same tables": [
        "sinks/test_two_drivers.py::test_older_driver_writes_nothing_that_the_newer_one_has_written"
    ],
    "the database of the JDBC sink cannot be reached": [
        "sinks/test_jdbc_targets.py::test_server_that_is_down_ends_the_query",
        "unit/test_jdbc_dialects.py::test_a_target_that_cannot_be_reached_concerns_all_tables",
    ],
    "the consumer cannot read or write a table": ["spark/test_parking.py::test_table_is_parked_and_resumed"],
    "a second producer with the prefix starts": [
        "integration/test_two_instances.py::test_reader_of_an_older_instance_does_not_start",
        "integration/test_two_instances.py::test_paused_instance_ends_when_it_resumes",
    ],
    "the topic of a table is deleted": [
        "integration/test_missing_topics.py::test_deleted_topic_is_reported_and_filled_by_a_snapshot",
        "integration/test_kafka_security.py::test_a_topic_that_may_not_be_created_concerns_its_table_alone",
    ],
    "the producer is paused for longer than its transaction timeout": [
        "integration/test_kafka_errors.py::test_transaction_that_the_broker_ends",
        "integration/test_kafka_errors.py::test_pause_of_the_producer_and_stop_of_its_servers",
    ],
    "a record is larger than Kafka accepts": [
        "integration/test_kafka_errors.py::test_row_that_is_too_large_is_located",
        "integration/test_refused_sizes.py::test_rows_that_are_refused_together_are_sent_apart",
        "integration/test_refused_sizes.py::test_watermarks_that_are_refused_concern_one_table",
    ],
    "the consumer is killed in a micro-batch": [
        "spark/test_kill.py::test_table_is_exact_after_kills_at_every_step_of_a_batch",
        "spark/test_kill.py::test_kill_between_append_and_merge_repeats_nothing",
    ],
    "a table without a key is created": [
        "integration/test_new_tables.py::test_table_without_a_key_is_taken_up_when_it_gets_one"
    ],
    "a table is created with IF NOT EXISTS, renamed into the capture": [
        "integration/test_new_tables.py::test_table_that_the_account_could_not_see_is_read",
        "integration/test_new_tables.py::test_tables_that_arrive_with_rows_are_read",
    ],
    "a column is added": [
        "integration/test_table_schemas.py::test_each_record_is_decoded_with_the_schema_that_its_header_names"
    ],
}
"""The beginning of each row, and its tests."""


def _rows() -> list[str]:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Failures")
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ")[0] for line in lines[2:]]


@cache
def _tests(path: str) -> dict[str, bool]:
    """Return the tests of a file, and whether a case of each is quick."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(ast.unparse(name) == "pytestmark" for name in node.targets)
    ]
    all_are_long = any("mark.long" in ast.unparse(each) for each in marks)
    return {
        node.name: not all_are_long and "pytest.mark.long" not in map(ast.unparse, node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_the_rows_are_found() -> None:
    assert len(_rows()) >= len(SHOWN_BY)


@pytest.mark.parametrize("row", _rows())
def test_a_row_has_a_test(row: str) -> None:
    shown = [tests for beginning, tests in SHOWN_BY.items() if row.startswith(beginning)]
    assert shown, f"no test shows what happens when {row}: add its test to SHOWN_BY"
    are_quick = []
    for each in shown[0]:
        path, _, name = each.partition("::")
        assert name in _tests(path), f"{each} does not exist"
        are_quick.append(_tests(path)[name])
    assert any(are_quick), f"only nightly runs show what happens when {row}: add a quick test to SHOWN_BY"


@pytest.mark.parametrize("beginning", SHOWN_BY)
def test_each_entry_has_its_row(beginning: str) -> None:
    assert any(row.startswith(beginning) for row in _rows())
