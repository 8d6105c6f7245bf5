"""How a key is printed in the headers of a changed key; the texts are those that the Debezium connector 3.6.1 wrote."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from tailrace.producer.serialization.key_changes import header_printer
from tailrace.schemas.connect import ConnectField, ConnectSchema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("logical", "value", "printed"),
    [
        ("Timestamp", datetime(2021, 1, 1, tzinfo=UTC), "2021-01-01"),
        ("Timestamp", datetime(2021, 1, 1, 2, 3, 4, 5000, tzinfo=UTC), "2021-01-01T02:03:04.005Z"),
        ("Timestamp", datetime(1960, 5, 5, 12, 34, 56, 789000, tzinfo=UTC), "12:34:56.789Z"),
        ("Date", date(2021, 1, 1), "2021-01-01"),
        ("Date", date(1960, 5, 5), "00:00:00.000Z"),
        ("Date", date(101, 1, 1), "00:00:00.000Z"),
        ("Time", timedelta(hours=1, milliseconds=2), "01:00:00.002Z"),
        ("Time", timedelta(hours=24), "1970-01-02"),
    ],
)
def test_connect_chooses_the_form_by_the_value(logical: str, value: datetime | date | timedelta, printed: str) -> None:
    schema = ConnectSchema("int64", name=f"org.apache.kafka.connect.data.{logical}", version=1)
    if isinstance(value, timedelta):
        number = value // timedelta(milliseconds=1)
    elif isinstance(value, datetime):
        number = (value - EPOCH) // timedelta(milliseconds=1)
    else:
        number = (value - EPOCH.date()).days

    header = header_printer([ConnectField("k", schema)])(b'{"k":%d}' % number)

    assert header.decode() == f'{{"k":{printed}}}'
