"""Tailrace writes what real Debezium wrote for the same statements: a comparison with the golden records."""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.debezium_parity import about, golden
from tests.debezium_parity.auxiliary_records import all_records
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.difference import Difference, NamedException
from tests.debezium_parity.normalize import normalized
from tests.debezium_parity.records import CHANGES, HEARTBEATS, TRANSACTIONS
from tests.debezium_parity.run import Outcome, run
from tests.debezium_parity.tailrace import tailrace_prefix
from tests.debezium_parity.topics import KafkaRecord
from tests.debezium_parity.variants import VARIANTS, Variant
from tests.debezium_parity.verdict import verdict

QUICK: Final = {"plain", "ahead", "avro"}
"""The variants of the quick suite: every converter, and with schemas all auxiliary records."""

MAX_BYTES: Final = 3_000_000

on_servers = [pytest.mark.mysql, pytest.mark.kafka, pytest.mark.registry, pytest.mark.timeout(1800)]


def _clock_default(difference: Difference) -> bool:
    """Whether the server fills the column with the time of the statement; the token keeps only the form."""
    return difference.record.table.startswith("defaults") and difference.path[-1] == "dtcn"


ANOTHER_RUN: Final = (NamedException("clock", "the row contains the server's clock", _clock_default),)


@functools.cache
def _outcomes(*, quick: bool) -> Mapping[str, Outcome]:
    """Capture the quick variants, or the others, on the same servers at the same time."""
    chosen = [variant for variant in VARIANTS if (variant.name in QUICK) is quick]
    return {outcome.variant.name: outcome for outcome in run(chosen, with_debezium=False)}


def _golden(variant: Variant) -> list[KafkaRecord]:
    return list(golden.read(variant.name, prefix=debezium_prefix(variant)))


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(each, id=each.name, marks=on_servers if each.name in QUICK else [*on_servers, pytest.mark.long])
        for each in VARIANTS
    ],
)
def test_records_equal_the_golden_records(variant: Variant) -> None:
    """Keys, rows, operations, headers, partitions, order and tokens are equal apart from the named exceptions."""
    outcome = _outcomes(quick=variant.name in QUICK)[variant.name]
    tailrace = normalized(outcome.tailrace, prefix=tailrace_prefix(variant))
    report = verdict(outcome._replace(debezium=_golden(variant), tailrace=tailrace), ANOTHER_RUN)

    differences = [str(each) for found in report.different.values() for each in found]
    assert not differences, "\n".join([*differences[:40], "log of the producer:", outcome.complaints])
    assert sum(report.equal.values()) + sum(map(len, report.excepted.values())) > 0


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_golden_records_are_complete(variant: Variant) -> None:
    """Every variant has rows of every table and every operation."""
    rows = all_records(_golden(variant), prefix=debezium_prefix(variant))

    assert len({row.table for row in rows}) >= 45
    assert {row.op for row in rows} >= {"r", "c", "u", "d", "ddl"}
    assert CHANGES in {row.table for row in rows}
    if variant.name in {"ahead", "avro"}:
        assert {TRANSACTIONS, HEARTBEATS} <= {row.table for row in rows}
        assert {"t", "BEGIN", "END"} <= {row.op for row in rows}


def test_golden_records_come_from_the_current_statements() -> None:
    """The versions, statements and properties of the recording are those of the other tests."""
    assert about.stored() == about.current()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_stored_records_are_normalized(variant: Variant) -> None:
    """Normalizing the stored records changes nothing."""
    stored = _golden(variant)

    assert normalized(stored, prefix=debezium_prefix(variant)) == stored


def test_storing_the_stored_records_changes_no_file(tmp_path: Path) -> None:
    """The base variant and the differences against it do not change, whether one variant or all are stored."""
    for path in golden.FOLDER.glob("*.jsonl"):
        shutil.copy(path, tmp_path)
    everything = {variant.name: _golden(variant) for variant in VARIANTS}
    prefixes = {variant.name: debezium_prefix(variant) for variant in VARIANTS}
    before = _digests(golden.FOLDER)

    golden.write(everything, prefixes=prefixes, folder=tmp_path)
    assert _digests(tmp_path) == before
    for name in (golden.BASE, "narrow"):
        golden.write({name: everything[name]}, prefixes=prefixes, folder=tmp_path)
        assert _digests(tmp_path) == before


def test_golden_records_stay_small() -> None:
    """All stored files together."""
    assert sum(path.stat().st_size for path in golden.FOLDER.iterdir()) < MAX_BYTES


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.jsonl"))}
