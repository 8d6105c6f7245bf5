"""Schema changes as plans and lineages: pure functions, no servers and no Spark session."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, get_args

import pytest
from pyspark.sql import types as tp
from structlog.testing import capture_logs

from tailrace.schemas.alteration import UNKNOWN, Alteration, AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectSchema
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.evolution.attempt import Attempt, warn_of_records_before
from tailrace.spark_consumer.evolution.plan import Fill, Plan, Step, make_plan
from tailrace.spark_consumer.evolution.policy import (
    Action,
    Behavior,
    ChangeKind,
    EvolutionPolicy,
    SourceNames,
    pending,
    position_text,
)
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.state import Shard
from tailrace.spark_consumer.source.schema_tracker import START, Origin, lineages, until

INT, LONG, TEXT = tp.IntegerType(), tp.LongType(), tp.StringType()
STORED: Final[Mapping[str, tp.DataType]] = {"id": LONG, "a": INT, "b": INT}
NAMES: Final = SourceNames(("id", "a", "b"))
SHARD: Final = Shard("p.d.t", (("shard", "1"),))


def add(column: str, value: object = UNKNOWN) -> ColumnChange:
    return ColumnChange(AlterationKind.ADD, column, schema=ConnectSchema("int32"), value=value)


def drop(column: str) -> ColumnChange:
    return ColumnChange(AlterationKind.DROP, column)


def rename(old: str, new: str) -> ColumnChange:
    return ColumnChange(AlterationKind.RENAME, new, old=old)


def convert(column: str) -> ColumnChange:
    return ColumnChange(AlterationKind.CONVERT, column)


def at(pos: int, *changes: ColumnChange, reread: bool = False) -> Alteration:
    """Return the alteration of a statement at a position."""
    return Alteration("p.d.t", "d", "t", "ALTER", changes, Sequence(1, 1, pos, 0, 0), reread)


def plan(
    behavior: Behavior,
    *alterations: Alteration,
    wanted: Mapping[str, tp.DataType],
    stored: Mapping[str, tp.DataType] | None = None,
    names: SourceNames | None = None,
    exclude: str = "",
    mark: str = "",
) -> Plan:
    """Return the plan for a table with the columns STORED, unless others are given."""
    policy = EvolutionPolicy(behavior, exclude=frozenset({exclude} - {""}))
    stored = STORED if stored is None else stored
    names = names or SourceNames(tuple(stored))
    return make_plan(stored, wanted, names, alterations, policy=policy, can_widen=DeltaTable.can_widen, mark=mark)


def steps(found: Plan) -> list[tuple[str, str, str]]:
    """Return the steps of a plan as texts."""
    return [(step.kind.value, step.old, step.column) for step in found.steps]


def test_added_column_is_filled_with_the_value_of_existing_rows() -> None:
    known = add("c", 5)
    found = plan("lenient", at(1, known, add("d", None), add("e")), wanted={**STORED, "c": INT, "d": INT, "e": INT})

    assert steps(found) == [("add.column", "", name) for name in "cde"]
    assert found.fills == {"c": Fill("c", added=known)}
    assert found.unknown == ["e"]


def test_renamed_column_keeps_its_values() -> None:
    change, wanted = at(1, rename("A", "c")), {"id": LONG, "b": INT, "c": INT}

    assert steps(plan("evolve", change, wanted=wanted)) == [("rename.column", "a", "c")]
    lenient = plan("lenient", change, wanted=wanted)
    assert (steps(lenient), lenient.fills) == ([("add.column", "", "c")], {"c": Fill("c", copied="a")})
    assert lenient.names == SourceNames(("id", "b", "c"), (), ("a",))


def test_replaced_column_loses_its_values() -> None:
    """DROP and ADD of one name, in one statement or two."""
    for changes in ([at(1, drop("a"), add("a", None))], [at(1, drop("a")), at(2, add("a", None))]):
        assert steps(plan("evolve", *changes, wanted=STORED)) == [("drop.column", "", "a"), ("add.column", "", "a")]
        lenient = plan("lenient", *changes, wanted=STORED)
        assert (lenient.steps, lenient.fills) == ([], {"a": Fill("a")})


def test_column_that_was_kept_is_reused() -> None:
    names = SourceNames(("id", "b"), (), ("a",))
    found = plan("lenient", at(1, add("a", 7)), wanted=STORED, names=names)

    assert (found.steps, found.fills["a"].added) == ([], add("a", 7))
    assert found.names == SourceNames(("id", "a", "b"), (), ())


@pytest.mark.parametrize("behavior", ["evolve", "lenient"])
def test_a_plan_can_be_repeated_after_each_step(behavior: Behavior) -> None:
    changes = [at(1, rename("a", "c")), at(2, drop("b"), add("d", 5))]
    wanted: dict[str, tp.DataType] = {"id": LONG, "c": INT, "d": INT}
    first = plan(behavior, *changes, wanted=wanted)
    columns = dict(STORED)
    for step in first.steps:
        if step.kind is ChangeKind.ADD:
            columns[step.column] = first.types[step.column]
        else:
            kind = columns.pop(step.old or step.column)
            if step.kind is ChangeKind.RENAME:
                columns[step.column] = kind

        repeated = plan(behavior, *changes, wanted=wanted, stored=columns, names=SourceNames(tuple(STORED)))

        assert repeated.names == first.names
        assert {**repeated.fills, **first.fills} == repeated.fills
        assert not any(fill.added is None and not fill.copied for fill in repeated.fills.values())


def test_exchanged_names_are_a_conflict() -> None:
    assert plan("lenient", at(1, rename("a", "b"), rename("b", "a")), wanted=STORED).conflicts


def test_ignored_columns_stay_out() -> None:
    found = plan("ignore", at(1, add("c", 1), rename("a", "d")), wanted={"id": LONG, "b": INT, "c": INT, "d": INT})

    assert not found.changes_target
    assert found.names == SourceNames(("id", "b", "c", "d"), ("c", "d"), ("a",))
    later = plan(
        "ignore", at(2, rename("c", "e")), wanted={"id": LONG, "b": INT, "e": INT, "d": INT}, names=found.names
    )
    assert later.names.ignored == ("d", "e")
    assert steps(plan("evolve", at(1, drop("a")), wanted={"id": LONG, "b": INT}, exclude="drop")) == []


def test_exception_refuses_each_change() -> None:
    found = plan("exception", at(1, drop("a")), wanted={"id": LONG, "b": INT, "c": INT})

    assert found.refused == [Step(ChangeKind.DROP, "a"), Step(ChangeKind.ADD, "c")]
    assert steps(found) == [("drop.column", "", "a"), ("add.column", "", "c")]


def test_only_the_mark_tells_that_steps_were_made() -> None:
    changes = at(1, drop("a"), rename("b", "c"), add("d", 5), add("e", None))
    wanted: dict[str, tp.DataType] = {"id": LONG, "c": INT, "d": INT, "e": INT}
    refused = plan("exception", changes, wanted=wanted, names=NAMES)

    assert steps(refused) == [
        ("drop.column", "", "a"),
        ("rename.column", "b", "c"),
        ("add.column", "", "d"),
        ("add.column", "", "e"),
    ]
    made = plan("exception", changes, wanted=wanted, stored=wanted, names=NAMES)
    assert (made.refused, made.steps) == (refused.refused, [])
    marked = plan("exception", changes, wanted=wanted, stored=wanted, names=NAMES, mark="1.1.1.0.0")
    assert (marked.refused, marked.steps, marked.names) == ([], [], refused.names)
    # A person can have given the column e a default.
    assert marked.fills == {"d": Fill("d", added=changes.changes[2]), "e": Fill("e")}


def test_a_mark_counts_if_the_columns_are_those_after_its_statements() -> None:
    changes = [at(1, rename("a", "c"), add("d", 5))]
    wanted: dict[str, tp.DataType] = {"id": LONG, "b": INT, "c": INT, "d": INT}
    after_one_step: dict[str, tp.DataType] = {"id": LONG, "b": INT, "c": INT}
    for stored, left in ((STORED, 2), (after_one_step, 1), ({**STORED, "c": INT, "d": INT}, 2)):
        found = plan("exception", *changes, wanted=wanted, stored=stored, names=NAMES, mark="1.1.1.0.0")
        assert (len(found.refused), len(found.steps)) == (2, left)
    marked = plan("exception", *changes, wanted={**wanted, "z": INT}, stored=wanted, names=NAMES, mark="1.1.1.0.0")
    assert steps(marked) == [("add.column", "", "z")]


def test_column_that_is_renamed_before_a_row_has_it_keeps_its_value() -> None:
    known, wanted = add("c", 5), {**STORED, "d": INT}
    found = plan("lenient", at(1, known), at(2, rename("c", "d")), wanted=wanted)

    assert steps(found) == [("add.column", "", "d")]
    assert (found.fills, found.unknown) == ({"d": Fill("d", added=known)}, [])
    gone = plan("lenient", at(1, known), at(2, rename("c", "d")), at(3, drop("d")), wanted=STORED)
    assert (gone.steps, gone.fills) == ([], {})
    ignored = plan("lenient", at(1, known), at(2, rename("c", "d")), wanted=wanted, exclude="rename")
    assert (ignored.steps, ignored.names.ignored) == ([], ("d",))


@pytest.mark.parametrize("behavior", ["evolve", "lenient"])
def test_rows_are_those_of_the_source_after_any_statements(behavior: Behavior) -> None:
    random = Random(11)
    for _ in range(400):
        source: dict[str, int | None] = {"id": 0, "a": 1, "b": 2}
        stored = dict(source)
        changes = [*_statements(random, source, 0), *_statements(random, source, 10)]
        found = _planned(EvolutionPolicy(behavior), stored, source, changes)
        if not found.conflicts:
            for name, value in _after(stored, found).items():
                assert source.get(name, value) == value, (name, changes, found)
            assert behavior != "evolve" or _after(stored, found).keys() == source.keys(), (changes, found)


@pytest.mark.parametrize(
    ("exclude", "others"),
    [("", ""), ("add", ""), ("drop", ""), ("rename", ""), ("", "cdz"), ("rename", "de")],
)
def test_rows_are_those_of_the_source_after_the_steps_of_a_person(exclude: str, others: str) -> None:
    """The named steps and the mark are enough, under another policy too, and nothing goes on without the mark.

    ``others``: columns that the other tables of a shared target have.
    """
    random, marks = Random(11), 0
    for _ in range(200):
        source: dict[str, int | None] = {"id": 0, "a": 1, "b": 2}
        stored, names, left, mark = {**source, **dict.fromkeys(others)}, NAMES, list[Alteration](), ""
        for number in range(last := random.randint(2, 4)):
            left += _statements(random, source, 10 * number) if number < last - 1 else []
            behavior: Behavior = "exception" if number < last - 1 else random.choice(get_args(Behavior))
            given = EvolutionPolicy(behavior, exclude=frozenset({exclude} - {""}))
            policy = SHARD.policy(given) if others else given
            planned = partial(_planned, policy, source=source)
            found = planned(stored, changes=left, mark=mark, names=names)
            if len(found.alterations) < len(left):  # the marked ones
                stored, names, left = _after(stored, found), found.names, left[len(found.alterations) :]
                found = planned(stored, changes=left, mark=mark, names=names)
            if found.conflicts:
                break
            assert not others or {step.kind for step in found.steps} <= {ChangeKind.ADD}
            if number == last - 1:
                left_out = {*found.names.ignored, *found.names.kept, *(set(others) - source.keys())}
                row = {name: value for name, value in _after(stored, found).items() if name not in left_out}
                assert row == {name: source[name] for name in source if name not in left_out}, found
            elif found.refused:
                part = _after_steps(stored, replace(found, steps=found.steps[: random.randint(1, 9)]))
                assert planned(part, changes=left, mark=mark, names=names).refused
                stored, mark, marks = _after_steps(stored, found), position_text(left), marks + 1
    assert marks


@pytest.mark.parametrize("behavior", ["evolve", "try_evolve", "lenient"])
def test_rows_are_those_of_the_source_after_an_attempt_that_was_interrupted(behavior: Behavior) -> None:
    """Between any two of its steps, before and after the rewrite; the source may have more statements since."""
    random, attempts, policy = Random(5), 0, EvolutionPolicy(behavior)
    for _ in range(2000):
        source: dict[str, int | None] = {"id": 0, "a": 1, "b": 2}
        stored, changes = dict(source), _statements(random, source, 0)
        found = _planned(policy, stored, source, changes)
        if found.conflicts or not found.changes_target:
            continue
        attempt = Attempt.of(found, _types(stored), policy)
        made = random.randint(0, len(found.steps))
        begun = "" if attempt is None else attempt.to_json(min(max(0, made - random.randint(0, 1)), len(found.steps)))
        filled = made == len(found.steps) and bool(random.randint(0, 1))
        part = replace(found, steps=found.steps[:made], fills=found.fills if filled else {})
        stored, done = _after(stored, part), list(changes)
        changes += _statements(random, source, done[-1].sequence.pos) if random.randint(0, 1) else []

        names = NAMES
        if begun:
            attempts += 1
            carried_on = Attempt.from_json(begun)
            assert carried_on.alterations(changes) == done
            found, left = carried_on.plan(names, done, _types(stored), can_widen=DeltaTable.can_widen, mark="")
            assert left == made
            assert behavior == "lenient" or not found.names.kept, (done, found)
            part = replace(found, steps=found.steps[left:], fills={} if filled else found.fills)
            stored, names = _after(stored, part), found.names
            found = _planned(policy, stored, source, changes[len(done) :], names=names)
        else:
            found = _planned(policy, stored, source, changes)
        if not found.conflicts:
            for name, value in _after(stored, found).items():
                assert source.get(name, value) == value, (name, changes, found)
    assert attempts


def test_an_attempt_for_marked_statements_goes_on_as_it_was_planned() -> None:
    """The source has the columns of a later statement already."""
    names, done = SourceNames(("id", "n"), kept=("m",)), at(1, rename("n", "m"), add("n"), add("x"))
    stored, later = dict.fromkeys(("id", "n", "m", "x"), INT), at(2, rename("m", "k"))
    wanted = dict.fromkeys(("id", "k", "n", "x"), INT)
    found = plan("exception", done, later, wanted=wanted, stored=stored, names=names, mark="1.1.1.0.0")
    attempt = Attempt.of(found, stored, EvolutionPolicy("exception"))
    assert attempt is not None
    begun = Attempt.from_json(attempt.to_json(0))

    repeated, left = begun.plan(
        names, begun.alterations([done, later]), stored, can_widen=DeltaTable.can_widen, mark="1.1.1.0.0"
    )

    assert left == 0
    assert (repeated.steps, repeated.fills, repeated.names) == (found.steps, found.fills, found.names)
    assert repeated.fills["m"] == Fill("m", copied="n")


def test_an_attempt_of_an_earlier_version_goes_on_with_its_steps() -> None:
    """It added and copied a column that is renamed behind one with a value."""
    done, wanted = [at(1, add("d", 5)), at(2, rename("a", "c"), add("a", 7))], {**STORED, "c": INT, "d": INT}
    attempt = Attempt(position_text(done), STORED, wanted, EvolutionPolicy("evolve"))
    stored = {name: value for name, value in json.loads(attempt.to_json(1)).items() if name != "moves_values"}

    found, left = Attempt.from_json(json.dumps(stored)).plan(
        NAMES, done, {**STORED, "d": INT}, can_widen=DeltaTable.can_widen, mark=""
    )

    assert (steps(found), left) == ([("add.column", "", "d"), ("add.column", "", "c")], 1)
    assert {name: fill.copied for name, fill in found.fills.items()} == {"d": "", "c": "a", "a": ""}


def test_a_column_is_renamed_behind_one_that_gets_a_value() -> None:
    """A copy would leave the former column in the target for good."""
    changes = [at(1, add("c", 5)), at(2, rename("a", "d")), at(3, rename("c", "a"))]
    found = plan("evolve", *changes, wanted={"id": LONG, "b": INT, "d": INT, "a": INT})

    assert steps(found) == [("rename.column", "a", "d"), ("add.column", "", "a")]
    assert (found.fills, found.names.kept) == ({"a": Fill("a", added=changes[0].changes[0])}, ())


def test_an_attempt_whose_statements_are_done_has_nothing_to_do() -> None:
    found = plan("evolve", at(1, rename("a", "c"), add("a", 5)), wanted={**STORED, "c": INT})
    attempt = Attempt.of(found, STORED, EvolutionPolicy("evolve"))

    assert attempt is not None
    assert Attempt.from_json(attempt.to_json(1)) == replace(attempt, step=1)
    assert attempt.alterations([at(2, drop("b"))]) == []
    assert attempt.alterations([at(1, rename("a", "c")), at(2, drop("b"))]) == [at(1, rename("a", "c"))]


def _types(row: Mapping[str, object]) -> dict[str, tp.DataType]:
    return dict.fromkeys(row, INT)


def _statements(random: Random, source: dict[str, int | None], done: int) -> list[Alteration]:
    """Return up to three statements, each with up to two changes of other columns, made in ``source`` too."""
    found = []
    for number in range(1, random.randint(1, 3) + 1):
        changes: list[ColumnChange] = []
        before, used = dict(source), {"id"}
        for _ in range(random.randint(1, 2)):
            own = [name for name in before if name not in used and name in source]
            new = random.choice([name for name in "abcde" if name not in source and name not in used] or [""])
            kind = random.choice((AlterationKind.ADD, AlterationKind.DROP, AlterationKind.RENAME))
            if kind is AlterationKind.ADD and new:
                source[new] = random.choice([None, 10 * (done + number)])
                changes.append(add(new, source[new]))
            elif kind is AlterationKind.DROP and own:
                changes.append(drop(random.choice(own)))
                del source[changes[-1].column]
            elif kind is AlterationKind.RENAME and own and new:
                changes.append(rename(random.choice(own), new))
                source[new] = source.pop(changes[-1].old)
            used |= {name for change in changes for name in (change.column, change.old)}
        if changes:
            found.append(at(done + number, *changes))
    return found


def _planned(
    policy: EvolutionPolicy,
    stored: Mapping[str, object],
    source: Mapping[str, object],
    changes: list[Alteration],
    *,
    mark: str = "",
    names: SourceNames = NAMES,
) -> Plan:
    can_widen = DeltaTable.can_widen
    return make_plan(_types(stored), _types(source), names, changes, policy=policy, can_widen=can_widen, mark=mark)


def _after_steps(stored: Mapping[str, int | None], found: Plan) -> dict[str, int | None]:
    """Return the row of a target after the steps of a plan."""
    row = dict(stored)
    for step in found.steps:
        assert step.kind is ChangeKind.DROP or step.column not in row
        value = row.pop(step.old or step.column, None)
        if step.kind is not ChangeKind.DROP:
            row[step.column] = value
    return row


def _after(stored: Mapping[str, int | None], found: Plan) -> dict[str, Any]:
    """Return the row of a target after a plan."""
    row = _after_steps(stored, found)
    values = {
        fill.column: row[fill.copied] if fill.copied else None if fill.added is None else fill.added.value
        for fill in found.fills.values()
    }
    return {**row, **values}


@pytest.mark.parametrize(
    ("behavior", "widened", "converted", "unsupported"),
    [("lenient", ["a"], [], ["b"]), ("try_evolve", ["a"], ["b"], []), ("ignore", [], ["a", "b"], [])],
)
def test_types_are_widened_or_checked_or_not_supported(
    behavior: Behavior, widened: list[str], converted: list[str], unsupported: list[str]
) -> None:
    found = plan(behavior, wanted={"id": LONG, "a": LONG, "b": TEXT})

    assert [each.column for each in found.widened] == widened
    assert [each.column for each in found.converted] == converted
    assert [each.column for each in found.unsupported] == unsupported


def test_rows_that_were_converted_are_reported_unless_a_snapshot_reads_them() -> None:
    assert plan("lenient", at(1, convert("a")), wanted=STORED).unknown == ["a"]
    assert plan("lenient", at(1, convert("a"), reread=True), wanted=STORED).unknown == []


def test_unknown_values_are_named_as_their_column_is_now() -> None:
    """The present column of that name is another one."""
    changes = [at(1, add("c")), at(2, drop("a")), at(3, rename("c", "a")), at(4, convert("b")), at(5, add("c", None))]

    found = plan("lenient", *changes, at(6, drop("b")), wanted={"id": LONG, "a": INT, "c": INT})
    assert found.unknown == ["a"]
    with capture_logs() as logs:
        warn_of_records_before(TableSchema("p.d.t", "d", "t", (), ()), changes)
    assert [each["columns"] for each in logs] == [["a", "b"]]


def test_unexplained_columns_are_found_by_name() -> None:
    found = plan("evolve", wanted={"id": LONG, "a": INT, "c": INT})

    assert steps(found) == [("drop.column", "", "b"), ("add.column", "", "c")]
    assert found.unknown == ["c"]


def test_lineage_follows_the_position_of_the_row() -> None:
    """The table returns to its first columns: the values of ``a`` before the DROP are not those after the ADD."""
    changes = [at(10, drop("a")), at(20, add("a", 7)), at(30, rename("a", "c"))]
    replaced = Origin(added=changes[1].changes[0])

    assert lineages(["id", "a"], changes) == [
        (START, {"id": Origin("id"), "c": replaced}),
        (Sequence(1, 1, 10, 0, 0), {"id": Origin("id"), "c": Origin("a")}),
        (Sequence(1, 1, 30, 0, 0), {"id": Origin("id"), "a": Origin("a")}),
    ]


def test_alterations_up_to_a_schema() -> None:
    """A reader can meet the new columns before the stream is at the statement."""
    changes = [at(10, add("a", 1)), at(20, add("b", 2)), at(30, convert("b"))]

    assert until(changes, ["id"], Sequence(1, 1, 5, 0, 0)) == []
    assert until(changes, ["id", "a"], Sequence(1, 1, 5, 0, 0)) == changes[:1]
    assert until(changes, ["id", "a", "b"], Sequence(1, 1, 35, 0, 0)) == changes
    assert pending(changes, position_text(changes[:2])) == changes[2:]


@pytest.mark.parametrize(
    ("include", "exclude", "kind", "applied"),
    [
        ("", "", ChangeKind.ADD, True),
        ("column", "drop", ChangeKind.DROP, False),
        ("add.column", "", ChangeKind.RENAME, False),
        ("alter", "", ChangeKind.TYPE, True),
        ("", "column", ChangeKind.ADD, False),
    ],
)
def test_lists_of_changes(include: str, exclude: str, kind: ChangeKind, applied: bool) -> None:
    policy = EvolutionPolicy("evolve", frozenset({include} - {""}), frozenset({exclude} - {""}))

    assert (policy.action(kind) is Action.APPLY) == applied


@pytest.mark.parametrize("behavior", ["evolve", "lenient", "ignore"])
@pytest.mark.parametrize("follows_case", [False, True])
def test_a_rename_in_other_letters_keeps_the_column(behavior: Behavior, follows_case: bool) -> None:
    """A format that compares names without case refuses it, and its readers need none; nor do those of a shard."""
    planned = partial(
        make_plan,
        STORED,
        {"id": LONG, "A": INT, "b": INT},
        NAMES,
        [at(1, rename("a", "A"))],
        can_widen=DeltaTable.can_widen,
        follows_case=follows_case,
    )
    found = planned(policy=EvolutionPolicy(behavior))

    assert steps(found) == ([("rename.column", "a", "A")] if follows_case and behavior != "ignore" else [])
    assert (found.names.ignored, found.names.kept, found.fills) == ((), (), {})
    assert planned(policy=SHARD.policy(EvolutionPolicy(behavior))).steps == []
