"""Judges one run: every record of every topic, and every schema, of both sides."""

from __future__ import annotations

from collections.abc import Sequence

from tests.debezium_parity.auxiliary_records import all_rows, beside_schema_differences
from tests.debezium_parity.compare import Difference, NamedException, Report, compare
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.exceptions import EXCEPTIONS, QUIET
from tests.debezium_parity.registered import in_connect, registered_differences
from tests.debezium_parity.rows import numbered
from tests.debezium_parity.run import Outcome
from tests.debezium_parity.schemas import debezium_schemas, published_differences, schema_differences, tailrace_schemas
from tests.debezium_parity.tailrace import tailrace_prefix


def judge(outcome: Outcome, also: Sequence[NamedException] = (), *, ranked: bool = False) -> Report:
    """Compare both sides of a run. ``ranked``: they are two runs, whose positions are known by their ranks alone.

    ``also`` are exceptions besides those that always hold.
    """
    prefixes = debezium_prefix(outcome.variant), tailrace_prefix(outcome.variant)
    differences: list[Difference] = []
    if outcome.variant.avro:
        differences += registered_differences(outcome.debezium, outcome.tailrace, prefixes=prefixes)
        outcome = Outcome(outcome.variant, in_connect(outcome.debezium), in_connect(outcome.tailrace))
    theirs = debezium_schemas(outcome.debezium, prefix=prefixes[0])
    ours = tailrace_schemas(outcome.tailrace, prefix=prefixes[1])
    differences += schema_differences(theirs, ours)
    differences += published_differences(outcome.variant, outcome.debezium, outcome.tailrace)
    differences += beside_schema_differences(outcome.debezium, outcome.tailrace, prefixes=prefixes)
    expected = all_rows(outcome.debezium, prefix=prefixes[0])
    actual = all_rows(outcome.tailrace, prefix=prefixes[1])
    if ranked:
        expected, actual = numbered(expected), numbered(actual)
    return compare(expected, actual, (*EXCEPTIONS, *also), quiet=QUIET, beside=differences)
