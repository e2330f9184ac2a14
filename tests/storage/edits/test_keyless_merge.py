"""Merges into tables without a primary key: the table equals what a loop over lists makes of it, whoever else edits."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog, expr
from freshet.storage.edits import rows_by_position
from freshet.storage.edits.merge import Merge
from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.kit.hypothesis_profile import examples
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.edits.tables import KINDS, MARKING, MARKING_BUCKETS, arrow, days, make, rows_of, write
from tests.storage.edits.test_row_edits import by_value, rival, sorted_rows

KEYLESS = {
    **{kind: made for kind, made in KINDS.items() if not made[1]},
    "marking": MARKING,
    "marking, with buckets": MARKING_BUCKETS,
}
RIVALLED = [
    "append",
    pytest.param("append with buckets", marks=pytest.mark.slow),
    pytest.param("marking", marks=pytest.mark.slow),
    pytest.param("marking, with buckets", marks=pytest.mark.slow),
]


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KEYLESS)
def test_all_clauses(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, KEYLESS[kind])
    write(table, days(range(6), 1, "d1"))
    write(table, [(2, "d2", 1), (3, "d1", 1), (9, "d2", 7)])
    source = arrow([(2, "d1", 10), (3, "d1", None), (50, "d3", 5), (51, "d1", 6)])
    merge = (
        table.merge(source, "id")
        .when_matched_delete("source.n IS NULL")
        .when_matched_update({"n": expr("target.n + source.n")})
        .when_not_matched_insert_all("source.n > 5")
        .when_not_matched_by_source_update({"n": 0}, "target.id = 5")
        .when_not_matched_by_source_delete("target.n = 7")
    )
    before = rows_of(table)
    tried = merge.execute(dry_run=True)
    assert (tried.rows_deleted, tried.rows_updated, tried.rows_inserted) == (3, 3, 1)
    assert rows_of(table) == before
    result = merge.execute()
    assert (result.rows_deleted, result.rows_updated, result.rows_inserted) == (3, 3, 1)
    assert [each.commit_kind for each in result.snapshots] == [CommitKind.OVERWRITE]
    assert rows_of(table) == [
        (0, "d1", 1), (1, "d1", 1), (2, "d1", 11), (2, "d2", 11), (4, "d1", 1), (5, "d1", 0), (51, "d1", 6),
    ]  # fmt: skip
    assert table.check(all_snapshots=True).damage == []


def test_only_new_rows_are_an_append_and_nothing_is_no_snapshot(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["append"])
    first = table.merge(arrow(days(range(3), 1)), ["id", "dt"]).when_not_matched_insert_all()
    assert [each.commit_kind for each in first.execute().snapshots] == [CommitKind.APPEND]
    again = table.merge(arrow(days(range(3), 1)), ["id", "dt"]).when_not_matched_insert_all().execute()
    assert again.snapshots == ()
    assert table.merge(arrow([]), "id").when_matched_delete().execute().snapshots == ()
    assert rows_of(table) == days(range(3), 1)


Clauses = list[tuple[str, str, int | None]]
"""Side, action, and the value that `n` is compared with; none where the clause has no condition."""
CLAUSE = st.one_of(
    st.tuples(st.just("m"), st.sampled_from(["all", "add", "delete"]), st.none() | st.integers(0, 3)),
    st.tuples(st.just("n"), st.sampled_from(["all", "seven"]), st.none() | st.integers(0, 3)),
    st.tuples(st.just("s"), st.sampled_from(["zero", "delete"]), st.none() | st.integers(0, 3)),
)
IDS = st.none() | st.integers(0, 8)
ROWS = st.lists(st.tuples(IDS, st.sampled_from(["d1", "d2"]), st.integers(0, 4)), max_size=12)
UNIQUE = st.lists(
    st.tuples(IDS, st.sampled_from(["d1", "d2"]), st.integers(0, 4)), max_size=6, unique_by=lambda row: row[0]
)
STEP = st.one_of(
    st.tuples(st.just("write"), ROWS),
    st.tuples(st.just("merge"), UNIQUE, st.lists(CLAUSE, min_size=1, max_size=4)),
    st.tuples(st.just("compact")),
)


def clause(merge: Merge, side: str, action: str, bound: int | None) -> Merge:
    name = "target" if side == "s" else "source"
    condition = None if bound is None else f"{name}.n <= {bound}"
    match side, action:
        case "m", "all":
            return merge.when_matched_update_all(condition)
        case "m", "add":
            return merge.when_matched_update({"n": expr("target.n + source.n")}, condition)
        case "m", _:
            return merge.when_matched_delete(condition)
        case "n", "all":
            return merge.when_not_matched_insert_all(condition)
        case "n", _:
            return merge.when_not_matched_insert({"id": expr("source.id"), "dt": "d1", "n": 7}, condition)
        case _, "zero":
            return merge.when_not_matched_by_source_update({"n": 0}, condition)
    return merge.when_not_matched_by_source_delete(condition)


Held = tuple[int | None, str, int]


def merged(held: list[Held], source: list[Held], clauses: Clauses) -> list[Held]:
    result, matched = [], set()
    for row in held:
        given = next((each for each in source if each[0] is not None and each[0] == row[0]), None)
        matched.add(None if given is None else given[0])
        result += changed(row, given, clauses)
    for each in source:
        if each[0] is None or each[0] not in matched:
            for side, action, bound in clauses:
                if side == "n" and (bound is None or each[2] <= bound):
                    result.append(each if action == "all" else (each[0], "d1", 7))
                    break
    return result


def changed(row: Held, given: Held | None, clauses: Clauses) -> list[Held]:
    for side, action, bound in clauses:
        seen = row if given is None else given
        if side != ("s" if given is None else "m") or (bound is not None and seen[2] > bound):
            continue
        if action == "delete":
            return []
        value = 0 if given is None else given[2] if action == "all" else row[2] + given[2]
        return [(row[0], row[1], value)]
    return [row]


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", ["append", "marking, with buckets"])
def test_histories(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    @settings(max_examples=examples(16))
    @given(st.lists(STEP, min_size=2, max_size=5))
    def check(steps: list[tuple]) -> None:  # type: ignore[type-arg]
        options, _, partitions = KEYLESS[kind]
        table = Catalog(tmp_path_factory.mktemp("h")).create_table(
            "db.t", schema={"id": "INT", "dt": "STRING", "n": "INT"}, partition_keys=partitions, options=options
        )
        held: list[Held] = []
        for step in steps:
            match step:
                case ("write", rows):
                    table.append(arrow(rows))
                    held += rows
                case ("merge", source, clauses):
                    merge = table.merge(arrow(source), "id")
                    for each in clauses:
                        merge = clause(merge, *each)
                    merge.execute()
                    held = merged(held, source, clauses)
                case _:
                    table.compact(full=True)
            found = Table.open(table.location).scan(["id", "dt", "n"]).to_arrow().to_pylist()
            assert Counter(tuple(row.values()) for row in found) == Counter(held)

    check()


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", RIVALLED)
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda table: table.delete("id = 1"), id="deletes the same row"),
        pytest.param(lambda table: table.delete("id = 2"), id="deletes another row of the file"),
        pytest.param(lambda table: table.compact(full=True), id="compacts"),
        pytest.param(lambda table: table.append(arrow([(70, "d1", 1)])), id="appends a row that is to be added"),
        pytest.param(lambda table: upsert(table).execute(), id="merges the same"),
        pytest.param(lambda table: table.truncate(), id="truncates"),
    ],
)
def test_rivals(tmp_path: Path, kind: str, act: Callable[[Table], object]) -> None:
    table = make(tmp_path, KEYLESS[kind])
    write(table, days(range(4), 1, "d1"))
    write(table, days(range(10, 14), 1, "d1"))
    slow, other = Table.open(table.location), make(tmp_path / "other", KEYLESS[kind])
    for rows in (range(4), range(10, 14)):
        write(other, days(rows, 1, "d1"))
    calls = rival(slow, lambda: act(Table.open(table.location)))
    upsert(slow).execute()
    assert calls
    act(other)
    upsert(other).execute()
    assert rows_of(table) == rows_of(other), "as if the rival had come first"
    assert table.check(all_snapshots=True).damage == []
    there = {path.name for path in (tmp_path / "db.db" / "t").rglob("data-*")}
    assert there <= named_ever(table), "a given-up attempt leaves no files"


def named_ever(table: Table) -> set[str]:
    """Names of the data files that any snapshot has added."""
    deltas = (delta_entries(table.store.manifests, snapshot) for snapshot in table.snapshots())
    return {entry.file.file_name for delta in deltas for entry in delta}


def upsert(table: Table) -> Merge:
    source = arrow([(1, "d1", 5), (70, "d1", 5)])
    return table.merge(source, "id").when_matched_update({"n": expr("source.n * 10")}).when_not_matched_insert_all()


def test_a_rival_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.edits.row_edits.ATTEMPTS_MAX", 2)
    table = make(tmp_path, KINDS["append"])
    write(table, days(range(4), 1, "d1"))
    slow = Table.open(table.location)
    rival(slow, lambda: table.update({"n": expr("n + 1")}, "id = 1"), times=99)
    with pytest.raises(RetryableError, match="nothing was committed"):
        upsert(slow).execute()
    assert (70, "d1", 5) not in rows_of(table)


def test_a_source_key_that_is_twice(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["append"])
    write(table, [(1, "d1", 1), (1, "d2", 2)])
    source = arrow([(1, "d1", 5), (1, "d1", 6), (7, "d1", 1), (7, "d1", 1)])
    with pytest.raises(InvalidRequestError, match=r"\{'id': 1\} more than once"):
        table.merge(source, "id").when_matched_update_all().execute()
    assert len(table.snapshots()) == 1
    table.merge(source.slice(2), "id").when_matched_delete().when_not_matched_insert_all().execute()
    assert rows_of(table) == [(1, "d1", 1), (1, "d2", 2), (7, "d1", 1), (7, "d1", 1)], "rows may repeat"


def test_what_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path, KEYLESS["append with buckets"])
    write(table, days(range(3), 1))
    merge = table.merge(arrow([(1, "d1", 5)]), "id")
    for wrong, words in (
        (merge.when_matched_update({"dt": "d2"}), "partition key"),
        (merge.when_matched_update({"id": 7}), "bucket key"),
        (merge.when_matched_update({"n": expr("target.nope")}), "the target has no column 'nope'"),
        (merge.when_matched_delete("source.nope = 1"), "the source has no column 'nope'"),
        (merge.when_not_matched_insert({"n": 1}), "nope"),
    ):
        if words != "nope":
            with pytest.raises(InvalidRequestError, match=words):
                wrong.execute()
    with pytest.raises(InvalidRequestError, match="'id'"):
        table.merge(arrow([(9, "d1", 5)]), "id").when_not_matched_insert({"dt": "d1", "n": 1}).execute()
    assert len(table.snapshots()) == 1
    table.merge(arrow([(1, "d9", 5)]), "id").when_matched_update_all().execute()
    assert (1, "d1", 5) in rows_of(table), "the partition of a row stays"


def test_odd_names_and_types(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "db.odd",
        schema={
            "Größe $": "BIGINT", "a.b": "STRING", "day": "DATE", "amount": "DECIMAL(12, 2)", "r": "ROW<x INT>",
            "ts": "TIMESTAMP(9)",
        },
        options={"deletion-vectors.enabled": "true"},
    )  # fmt: skip
    day = datetime.date(1969, 7, 20)
    rows = [{"Größe $": n, "a.b": f"ü{n}", "day": day, "amount": 1, "r": {"x": n}, "ts": None} for n in range(5)]
    table.append(rows)
    source = [
        {"Größe $": 2, "a.b": "neu", "day": day, "amount": Decimal("0.1"), "r": None, "more": 7},
        {"Größe $": 9, "a.b": None, "day": None, "amount": None, "r": {"x": None}, "more": None},
    ]
    merge = table.merge(source, ["größe $", "day"])
    merge = merge.when_matched_update({"amount": expr("target.amount + source.amount"), "a.b": expr("source.`a.b`")})
    merge.when_not_matched_insert_all("source.more IS NULL").execute()
    found = {row["Größe $"]: row for row in table.scan().to_arrow().to_pylist()}
    assert found[2] == {**rows[2], "amount": Decimal("1.10"), "a.b": "neu"}
    assert found[9] == {"Größe $": 9, "a.b": None, "day": None, "amount": None, "r": {"x": None}, "ts": None}


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}])
def test_values_that_are_too_long(tmp_path: Path, options: dict[str, str]) -> None:
    table = Catalog(tmp_path).create_table(
        "db.short", schema={"id": "INT", "code": "VARCHAR(3)", "n": "INT"}, options=options
    )
    table.append([{"id": 1, "code": "abc", "n": None}, {"id": 2, "code": "x", "n": None}])
    long = table.merge([{"id": 1, "code": "long"}], "id").when_matched_update_all()
    for edit in (long.execute, lambda: table.update({"code": "long"}, "id = 1")):
        with pytest.raises(InvalidRequestError, match=r"VARCHAR\(3\)"):
            edit()
    table.merge([{"id": 1, "code": "new"}], "id").when_matched_update_all().execute()
    assert {row["id"]: row["code"] for row in table.scan().to_arrow().to_pylist()} == {1: "new", 2: "x"}


def test_files_outside_of_the_source_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, KINDS["append"])
    for start in (0, 100, 200):
        write(table, days(range(start, start + 10), 1, "d1"))
    read: list[tuple[Any, ...]] = []
    original = rows_by_position.DataFileRead
    monkeypatch.setattr(
        rows_by_position, "DataFileRead", lambda *args, **kw: read.append(args) or original(*args, **kw)
    )
    table.merge(arrow([(103, "d1", 5), (None, "d1", 5)]), "id").when_matched_update_all().execute()
    assert len({args[3].file_name for args in read}) == 1
    assert (103, "d1", 5) in rows_of(table)


@pytest.mark.few(3)
@pytest.mark.judge
@pytest.mark.parametrize("kind", KEYLESS)
def test_paimon_reads_it_and_goes_on(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    table = make(tmp_path, KEYLESS[kind])
    judge = paimon.table(tmp_path / "db.db" / "t")
    write(table, days(range(40), 1))
    write(table, days(range(40, 60), 2))
    for low in (10, 30):
        merge = table.merge(arrow(days(range(low, low + 60), low)), ["id", "dt"])
        merge = merge.when_matched_delete("source.id % 5 = 0").when_matched_update_all()
        merge.when_not_matched_insert_all().when_not_matched_by_source_delete("target.id = 1003").execute()
        assert sorted(judge.read_rows(), key=by_value) == sorted_rows(table)
    if table.options.bucket > 0:
        judge.write([(3, "d1", 7), (500, "d1", 7)])
        table.merge(arrow([(500, "d1", 8)]), "id").when_matched_update_all().execute()
        assert sorted(judge.read_rows(), key=by_value) == sorted_rows(table)
    table.compact(full=True)
    assert sorted(judge.read_rows(), key=by_value) == sorted_rows(table)
