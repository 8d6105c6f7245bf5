"""The schema registry client: the difference of two schemas, and secrets in its settings."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.producer.serialization.schema_registry import difference
from tests.support.values import registry_settings


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
def test_difference_names_each_changed_field(old: Any, new: Any, said: str) -> None:
    """Fields are named by record, also within unions."""
    assert difference(old, new) == said


def test_settings_do_not_print_passwords() -> None:
    """Neither that of the URL nor that of the separate setting."""
    settings = registry_settings("https://me:hush-1@one:8081/x,http://two", user_info="me:hush-2")

    assert repr(settings) == "RegistrySettings(https://one:8081/x, http://two)"
