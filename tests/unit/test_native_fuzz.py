"""A short run of the fuzzer: damaged bytes end in equal records or the same error from both implementations."""

from __future__ import annotations

import pytest

from tailrace.producer.native import loader
from tests.fuzz.campaign import Campaign, Limits

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)


@pytest.mark.parametrize("seed", [20_261, 20_262])
def test_damaged_bytes_have_one_outcome(seed: int) -> None:
    """Tables of all types and modes; the seed is fixed, and a difference names its input."""
    tally = Campaign(seed, compared=0.25, guards=False).run(Limits(inputs=10_000, seconds=600, of_subject=1_000))
    assert tally.compared > 500
    assert tally.errors < tally.compared, "no damaged input is valid: nothing is compared but errors"
    assert min(tally.by_op.values()) > 500
