"""Overwrites by a filter: what it chooses is gone, the rows given are there, everything else is as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.kit.hypothesis_profile import examples
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.edits.tables import KINDS, MARKING, MARKING_BUCKETS, MOVING, Row, arrow, days, make, rows_of, write
from tests.storage.edits.test_keyless_merge import named_ever
from tests.storage.edits.test_row_edits import folded, rival

SLOW = pytest.mark.slow
ALL = {**KINDS, "marking": MARKING, "marking, with buckets": MARKING_BUCKETS, "moving": MOVING}


QUICK = ("keyed", "lookup", "append", "marking, with buckets", "moving")


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [kind if kind in QUICK else pytest.param(kind, marks=SLOW) for kind in ALL])
def test_rows_are_replaced(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    write(table, days(range(6), 1))
    write(table, days(range(4, 8), 2))
    before = rows_of(table)
    new = arrow([(5, "d1", 2), (77, "d1", 2)])
    tried = table.overwrite(new, filter="n = 2 AND dt = 'd1'", dry_run=True)
    assert tried.is_dry_run
    assert rows_of(table) == before
    result = table.overwrite(new, filter="n = 2 AND dt = 'd1'")
    kept = [row for row in before if not (row[2] == 2 and row[1] == "d1")]
    assert rows_of(table) == sorted([*kept, (5, "d1", 2), (77, "d1", 2)])
    assert (tried.rows_deleted, tried.rows_updated, tried.rows_inserted) == (
        result.rows_deleted,
        result.rows_updated,
        result.rows_inserted,
    )
    if not table.schema.primary_keys:
        assert [each.commit_kind for each in result.snapshots] == [CommitKind.OVERWRITE]
    if table.options.changelog_producer.value in ("input", "lookup"):
        assert folded(table) == rows_of(table)
    table.overwrite(arrow([]), filter="n = 2")
    assert rows_of(table) == [row for row in kept if row[2] != 2]
    assert table.check(all_snapshots=True).damage == []


@pytest.mark.parametrize("kind", ["keyed", "append"])
def test_a_filter_on_partitions_replaces_them(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    write(table, days(range(3), 1, "d1", "d2", "d3"))
    result = table.overwrite(arrow([(1, "d3", 9)]), filter="dt >= 'd2'")
    assert result.snapshots[0].commit_kind is CommitKind.OVERWRITE
    assert rows_of(table) == sorted([*days(range(3), 1, "d1"), (1, "d3", 9)])
    tried = table.overwrite(arrow([]), filter="dt IN ('d1', 'd9')", dry_run=True)
    assert (tried.files_removed > 0, tried.files_added) == (True, 0)
    assert len(rows_of(table)) == 4


@pytest.mark.parametrize("kind", ["keyed", "append"])
@pytest.mark.parametrize(("filter_text", "first"), [("n > 5", 3), ("dt = 'd1'", 2), ("n IS NOT NULL", 4)])
def test_the_first_row_that_does_not_fit_is_named(tmp_path: Path, kind: str, filter_text: str, first: int) -> None:
    table = make(tmp_path, ALL[kind])
    write(table, days(range(3), 1))
    files = set(tmp_path.rglob("*.parquet"))
    rows: list[Row] = [(1, "d1", 6), (2, "d1", 7), (3, "d2", 8), (4, "d1", 1), (5, "d1", None)]
    with pytest.raises(InvalidRequestError, match=f"row {first} of the rows"):
        table.overwrite(arrow(rows), filter=filter_text)
    assert len(rows_of(table)) == 6
    assert set(tmp_path.rglob("*.parquet")) == files


def test_what_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(3), 1, "d1"))
    for rows, choice, words in (
        ([(1, "d1", 7)], {"filter": "n = 7"}, "'id': 1.*the filter is not true"),
        ([(9, "d1", 7), (9, "d1", 7)], {"filter": "n = 7"}, "2 times"),
        ([(9, "d1", 7)], {"filter": "n = 7", "partition": {"dt": "d1"}}, "leave partition="),
        ([(9, "d1", 7)], {"filter": "n = 7", "dynamic": True}, "leave partition="),
        ([(9, "d1", 7)], {"filter": ""}, "filter"),
        ([(9, "d1", 7)], {"filter": "m = 7"}, "'m'"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            table.overwrite(arrow(rows), **choice)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="_ROW_KIND"):
        table.overwrite([{"id": 1, "dt": "d1", "n": 1, ROW_KIND_COLUMN: "-D"}], filter="n = 1")
    assert rows_of(table) == days(range(3), 1, "d1")
    sums = Catalog(tmp_path).create_table(
        "db.sums",
        schema={"id": "INT", "n": "INT"},
        primary_keys=["id"],
        options={"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    )
    with pytest.raises(InvalidRequestError, match="aggregation.remove-record-on-delete"):
        sums.overwrite({"id": [1], "n": [1]}, filter="n = 1")


def test_an_overwrite_that_only_adds_is_one_too(tmp_path: Path) -> None:
    table = make(tmp_path, MARKING_BUCKETS)
    result = table.overwrite(arrow([(1, "d1", 5)]), filter="n = 5")
    assert [each.commit_kind for each in result.snapshots] == [CommitKind.OVERWRITE]
    assert rows_of(table) == [(1, "d1", 5)]
    assert table.overwrite(arrow([]), filter="n = 6").snapshots == ()


STEP = st.tuples(
    st.sampled_from(["write", "overwrite"]),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=8, unique_by=lambda row: row[0]),
    st.integers(0, 4),
    st.sampled_from(["n <= {0}", "n = {0}", "n >= {0} AND dt = 'd1'", "dt = 'd{0}'"]),
)
TESTS: dict[str, Callable[[Row, int], bool]] = {
    "n <= {0}": lambda row, bound: (row[2] or 0) <= bound,
    "n = {0}": lambda row, bound: row[2] == bound,
    "n >= {0} AND dt = 'd1'": lambda row, bound: (row[2] or 0) >= bound and row[1] == "d1",
    "dt = 'd{0}'": lambda row, bound: row[1] == f"d{bound}",
}


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", ["keyed", "append", "marking, with buckets"])
def test_histories(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    @settings(max_examples=examples(12))
    @given(st.lists(STEP, min_size=2, max_size=5))
    def check(steps: list[tuple[str, list[tuple[int, int]], int, str]]) -> None:
        table = make(tmp_path_factory.mktemp("h"), ALL[kind])
        held: list[Row] = []
        for verb, pairs, bound, text in steps:
            given_rows: list[Row] = [(number, f"d{number % 3}", n) for number, n in pairs]
            if verb == "overwrite":
                test = TESTS[text]
                stored = {row[0]: row for row in held}
                fitting = [row for row in given_rows if test(row, bound)]
                if table.schema.primary_keys:
                    fitting = [row for row in fitting if row[0] not in stored or test(stored[row[0]], bound)]
                table.overwrite(arrow(fitting), filter=text.format(bound))
                held = [row for row in held if not test(row, bound)] + fitting
            else:
                write(table, given_rows)
                keys = {row[0] for row in given_rows} if table.schema.primary_keys else set()
                held = [row for row in held if row[0] not in keys] + given_rows
            assert Counter(rows_of(table)) == Counter(held), (verb, text, bound)

    check()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "kind", ["keyed", "append", pytest.param("marking, with buckets", marks=SLOW), pytest.param("vectors", marks=SLOW)]
)
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda table: write(table, [(70, "d1", 2)]), id="adds a row that is replaced"),
        pytest.param(lambda table: write(table, [(71, "d1", 1)]), id="adds another row"),
        pytest.param(lambda table: table.delete("id = 2"), id="deletes"),
        pytest.param(lambda table: table.compact(full=True), id="compacts"),
    ],
)
def test_rivals(tmp_path: Path, kind: str, act: Callable[[Table], object]) -> None:
    table = make(tmp_path, ALL[kind])
    write(table, days(range(4), 1, "d1"))
    write(table, days(range(10, 14), 2, "d1"))
    slow = Table.open(table.location)
    calls = rival(slow, lambda: act(Table.open(table.location)))
    slow.overwrite(arrow([(10, "d1", 2), (90, "d1", 2)]), filter="n = 2")
    assert calls
    found = rows_of(table)
    assert [row for row in found if row[2] == 2 and row[0] != 70] == [(10, "d1", 2), (90, "d1", 2)]
    is_keyed = bool(table.schema.primary_keys)
    assert ((70, "d1", 2) in found) is (is_keyed and 70 in {row[0] for row in found}), "of a keyed table it is later"
    assert table.check(all_snapshots=True).damage == []
    if not is_keyed:
        there = {path.name for path in (tmp_path / "db.db" / "t").rglob("data-*")}
        assert there <= named_ever(table), "a given-up attempt leaves no files"


@pytest.mark.few(3)
@pytest.mark.judge
@pytest.mark.parametrize("kind", ALL)
def test_paimon_reads_it_and_goes_on(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    judge = paimon.table(tmp_path / "db.db" / "t")
    write(table, days(range(40), 1))
    write(table, days(range(30, 60), 2, "d1"))
    table.overwrite(arrow([*days(range(35, 38), 2, "d1"), (99, "d1", 2)]), filter="n = 2")
    assert sorted(judge.read_rows()) == rows_of(table)
    table.overwrite(arrow([(1005, "d2", 4), (1099, "d2", 4)]), filter="dt = 'd2'")
    assert sorted(judge.read_rows()) == rows_of(table)
    if table.options.bucket > 0:
        judge.write([(36, "d1", 7), (500, "d1", 7)])
        table.overwrite(arrow([(500, "d1", 7)]), filter="n = 7")
        assert sorted(judge.read_rows()) == rows_of(table)
    table.compact(full=True)
    assert sorted(judge.read_rows()) == rows_of(table)
