"""The registry's client: what it says of a difference, and what it never prints."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.producer.config.registry_settings import RegistrySettings
from tailrace.producer.serialization.schema_registry import difference


def _record(**fields: Any) -> dict[str, Any]:
    row = {"type": "record", "name": "Value", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    return {"type": "record", "name": "Envelope", "fields": [{"name": "before", "type": ["null", row]}]}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (_record(a="int"), _record(a="string"), "Value.a: int -> string"),
        (_record(a="int"), _record(a="int", b=["null", "long"]), "Value.b was added: null or long"),
        (_record(a="int", b="int"), _record(a="int"), "Value.b was removed"),
        (
            _record(a="int"),
            _record(a={"type": "bytes", "logicalType": "decimal"}),
            "Value.a: int -> bytes (decimal)",
        ),
        (_record(a="int"), _record(a="int"), "only in properties"),
    ],
)
def test_the_difference_of_two_versions_is_told_by_field(old: Any, new: Any, said: str) -> None:
    """By record and field, also within unions."""
    assert difference(old, new) == said


def test_settings_do_not_print_users() -> None:
    """Neither those of the URL nor those beside it."""
    settings = RegistrySettings("https://me:hush-1@one:8081/x,http://two", "me:hush-2")

    assert repr(settings) == "RegistrySettings(https://one:8081/x, http://two)"
