"""Compares everything that both connectors wrote in one run: all records of all topics, and all schemas."""

from __future__ import annotations

from collections.abc import Sequence

from tests.debezium_parity.auxiliary_records import all_records, auxiliary_schema_differences
from tests.debezium_parity.compare import Report, compare
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.difference import Difference, NamedException
from tests.debezium_parity.exceptions import EXCEPTIONS, QUIET
from tests.debezium_parity.registered import in_connect, registered_differences
from tests.debezium_parity.run import Outcome
from tests.debezium_parity.schemas import debezium_schemas, published_differences, schema_differences, tailrace_schemas
from tests.debezium_parity.tailrace import tailrace_prefix


def verdict(outcome: Outcome, more: Sequence[NamedException] = ()) -> Report:
    """Compare the two sides of a run; ``more`` are exceptions in addition to ``EXCEPTIONS``."""
    prefixes = debezium_prefix(outcome.variant), tailrace_prefix(outcome.variant)
    differences: list[Difference] = []
    if outcome.variant.avro:
        differences += registered_differences(outcome.debezium, outcome.tailrace, prefixes=prefixes)
        outcome = Outcome(outcome.variant, in_connect(outcome.debezium), in_connect(outcome.tailrace))
    expected = debezium_schemas(outcome.debezium, prefix=prefixes[0])
    actual = tailrace_schemas(outcome.tailrace, prefix=prefixes[1])
    differences += schema_differences(expected, actual)
    differences += published_differences(outcome.variant, outcome.debezium, outcome.tailrace)
    differences += auxiliary_schema_differences(outcome.debezium, outcome.tailrace, prefixes=prefixes)
    return compare(
        all_records(outcome.debezium, prefix=prefixes[0]),
        all_records(outcome.tailrace, prefix=prefixes[1]),
        (*EXCEPTIONS, *more),
        quiet=QUIET,
        further=differences,
    )
