"""The comparison of a consumer's soak finds each kind of damage, and its waits end when the records are applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak.consumer.context import Said, complaints
from tests.soak.consumer.progress import has_applied, parked_reason
from tests.soak.consumer.verify import compare
from tests.soak.tables import Row, key_text
from tests.support.driver_process import DriverProcess

TABLE = "by_integer"
ROWS: list[Row] = [{"id": number, "v": f"v{number}", "n": number} for number in range(3)]
SOURCE = {key_text(TABLE, row): row for row in ROWS}


@pytest.mark.parametrize(
    ("rows", "lost", "doubled"),
    [
        (ROWS, 0, 0),
        (ROWS[1:], 1, 0),
        ([*ROWS[:2], {**ROWS[2], "v": "older"}], 1, 0),
        ([*ROWS, ROWS[0], ROWS[0]], 0, 2),
        ([*ROWS, {**ROWS[0], "id": 9}], 0, 1),
    ],
)
def test_damage_is_counted(rows: list[Row], lost: int, doubled: int) -> None:
    verdict = compare(TABLE, rows, SOURCE)

    assert (verdict.rows, verdict.lost, verdict.doubled) == (3, lost, doubled)
    assert bool(verdict.problems) == bool(lost or doubled)


def test_batches_and_parked_tables_count_as_progress(tmp_path: Path) -> None:
    def batch(number: int, ends: dict[str, dict[str, int]]) -> None:
        for folder in ("offsets", "commits"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(ends)}", encoding="utf-8")

    wanted = {"a": {0: 5}, "b": {0: 7, 1: 2}}
    assert not has_applied(tmp_path, wanted)
    batch(9, {"a": {"0": 5}, "b": {"0": 7, "1": 2}})
    batch(10, {"a": {"0": 6}, "b": {"0": 8, "1": 3}})
    assert not has_applied(tmp_path, wanted)  # planned only
    (tmp_path / "commits" / "9").touch()
    assert has_applied(tmp_path, wanted)
    assert not has_applied(tmp_path, {"a": {0: 6}})

    folder = tmp_path / "tailrace" / "parked"
    folder.mkdir(parents=True)
    (folder / "b.json").write_text(json.dumps({"starts": {"0": 7, "1": 1}, "reason": "why"}), encoding="utf-8")
    assert not has_applied(tmp_path, wanted)
    assert (parked_reason(tmp_path, "a"), parked_reason(tmp_path, "b")) == (None, "why")


class Ended(DriverProcess):
    """A driver that is not started."""

    def start(self) -> None:
        """Do nothing."""


def test_what_a_driver_says_is_found_in_its_log(tmp_path: Path) -> None:
    driver = Ended(tmp_path / "driver.log")
    parked = {
        "topic": "a",
        "reason": "/x/7.json is empty",
        "hint": "restore it",
        "event": "table parked; the others go on",
    }
    earlier, later = (
        json.dumps({"error": {"message": message, "hint": "start"}, "level": "critical"}, separators=(",", ":"))
        for message in ("earlier", "3 tables are parked")
    )
    driver.log.write_text(f"{earlier}\n", encoding="utf-8")
    said = Said(driver)
    assert (said.error(), said.parked("a", "")) == ("", False)

    with driver.log.open("a", encoding="utf-8") as log:
        log.write(f"{json.dumps(parked, separators=(',', ':'))}\nWARN x\n{later}\nWARN y\n")

    assert said.parked("a", "7.json")
    assert not said.parked("b", "7.json")
    assert said.error() == str({"message": "3 tables are parked", "hint": "start"})
    assert complaints([driver.log]) == {"parked: … is empty": 1, "ended: earlier": 1, "ended: N tables are parked": 1}
