"""Merges: the table equals what a loop over the rows makes of it, whatever the clauses and the table."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, expr
from freshet.storage.edits.merge import Merge
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import Table
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.edits.tables import KINDS, MOVING, Row, arrow, days, make, rows_of, write
from tests.storage.edits.test_row_edits import folded, rival

KEYED = {**{kind: made for kind, made in KINDS.items() if made[1]}, "moving": MOVING}


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KEYED)
def test_matched_and_not_matched(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, KEYED[kind])
    on = list(table.schema.primary_keys)
    write(table, days(range(6), 1, "d1"))
    source = arrow([(2, "d1", 10), (3, "d1", None), (50, "d1", 5), (51, "d1", 6)])
    merge = (
        table.merge(source, on)
        .when_matched_delete("source.n IS NULL")
        .when_matched_update({"n": expr("target.n + source.n")})
        .when_not_matched_insert_all("source.n > 5")
    )
    tried = merge.execute(dry_run=True)
    assert (tried.rows_deleted, tried.rows_updated, tried.rows_inserted) == (1, 1, 1)
    assert rows_of(table) == days(range(6), 1, "d1")
    result = merge.execute()
    assert (result.rows_deleted, result.rows_updated, result.rows_inserted) == (1, 1, 1)
    assert rows_of(table) == [(0, "d1", 1), (1, "d1", 1), (2, "d1", 11), (4, "d1", 1), (5, "d1", 1), (51, "d1", 6)]
    if table.options.changelog_producer.value in ("input", "lookup"):
        assert folded(table) == rows_of(table)


def test_all_of_a_target(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, days(range(6), 1, "d1"))
    result = (
        table.merge(arrow([(1, "d2", 7), (9, "d2", 9)]), "id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"n": 0}, "target.id = 2")
        .when_not_matched_by_source_delete("target.id > 3")
        .execute()
    )
    assert (result.rows_deleted, result.rows_updated, result.rows_inserted) == (2, 2, 1)
    assert rows_of(table) == [(0, "d1", 1), (1, "d2", 7), (2, "d1", 0), (3, "d1", 1), (9, "d2", 9)]


def test_columns_that_are_no_key(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, [(1, "a", 1), (2, "a", 1), (3, "b", 1), (4, "c", 1)])
    source = pa.table({"dt": ["a", "b", None], "more": [10, 20, 30]})
    table.merge(source, "dt").when_matched_update({"n": expr("target.n + source.more")}).execute()
    assert rows_of(table) == [(1, "a", 11), (2, "a", 11), (3, "b", 21), (4, "c", 1)]
    inserts = table.merge(source, "dt").when_not_matched_insert({"id": expr("source.more"), "dt": "new", "n": None})
    inserts.execute()
    assert rows_of(table)[-1] == (30, "new", None), "NULL matches nothing"


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_merges(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(sorted(KEYED))
    table = make(tmp_path, KEYED[kind])
    held: dict[int, Row] = {}
    rows: list[Row] = [(number, "d1", rng.randrange(5)) for number in rng.sample(range(30), 15)]
    write(table, rows)
    held.update({row[0]: row for row in rows})
    for _ in range(4):
        source: list[Row] = [(number, "d1", rng.randrange(5)) for number in rng.sample(range(30), 8)]
        merge, made = table.merge(arrow(source), list(table.schema.primary_keys)), []
        for _ in range(rng.randrange(1, 4)):
            clause, change = rng.choice(CLAUSES)
            merge = clause(merge)
            made.append(change)
        merge.execute()
        held = merged(held, {row[0]: row for row in source}, made)
        assert rows_of(table) == sorted(held.values()), (kind, repr(merge))


Change = tuple[str, Callable[[Row | None, Row | None], bool], Callable[[Row | None, Row | None], Row | None]]
CLAUSES: list[tuple[Callable[[Merge], Merge], Change]] = [
    (lambda m: m.when_matched_update_all("source.n > 2"), ("m", lambda t, s: s[2] > 2, lambda t, s: s)),  # type: ignore[index]
    (
        lambda m: m.when_matched_update({"n": expr("target.n * 2")}),
        ("m", lambda t, s: True, lambda t, s: (t[0], t[1], t[2] * 2)),  # type: ignore[index]
    ),
    (lambda m: m.when_matched_delete("target.n = source.n"), ("m", lambda t, s: t[2] == s[2], lambda t, s: None)),  # type: ignore[index]
    (lambda m: m.when_not_matched_insert_all(), ("n", lambda t, s: True, lambda t, s: s)),
    (
        lambda m: m.when_not_matched_insert({"id": expr("source.id"), "dt": "d1", "n": 7}, "source.n < 3"),
        ("n", lambda t, s: s[2] < 3, lambda t, s: (s[0], "d1", 7)),  # type: ignore[index]
    ),
    (lambda m: m.when_not_matched_by_source_delete("target.n = 1"), ("s", lambda t, s: t[2] == 1, lambda t, s: None)),  # type: ignore[index]
    (
        lambda m: m.when_not_matched_by_source_update({"n": 3}, "target.id < 10"),
        ("s", lambda t, s: t[0] < 10, lambda t, s: (t[0], t[1], 3)),  # type: ignore[index]
    ),
]


def merged(held: dict[int, Row], source: dict[int, Row], clauses: list[Change]) -> dict[int, Row]:
    result = {}
    for number in sorted({*held, *source}):
        target, given = held.get(number), source.get(number)
        side = "n" if target is None else "s" if given is None else "m"
        row = target
        for of_side, test, change in clauses:
            if of_side == side and test(target, given):
                row = change(target, given)
                break
        if row is not None:
            result[number] = row
    return result


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KEYED)
def test_rows_that_others_change_meanwhile(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, KEYED[kind])
    write(table, days(range(4), 1, "d1"))
    slow = Table.open(table.location)
    calls = rival(slow, lambda: write(table, [(1, "d1", 100), (7, "d1", 100)]))
    source = arrow([(1, "d1", 5), (7, "d1", 5), (8, "d1", 5)])
    merge = slow.merge(source, list(table.schema.primary_keys))
    merge.when_matched_update({"n": expr("target.n + source.n")}).when_not_matched_insert_all().execute()
    assert calls
    assert rows_of(table) == [(0, "d1", 1), (1, "d1", 105), (2, "d1", 1), (3, "d1", 1), (7, "d1", 105), (8, "d1", 5)]


@pytest.mark.parametrize("on", [["id", "n"], ["n"]])
def test_a_row_that_was_not_matched_is_not_replaced(tmp_path: Path, on: list[str]) -> None:
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, [(1, "d1", 1)])
    with pytest.raises(InvalidRequestError, match="'id': 1.*nothing matched"):
        table.merge(arrow([(1, "d1", 2)]), on).when_not_matched_insert_all().execute()
    table.merge(arrow([(2, "d1", 2)]), on).when_not_matched_insert_all().execute()
    assert rows_of(table) == [(1, "d1", 1), (2, "d1", 2)]


def test_a_key_that_is_computed_is_looked_at_again(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, [(1, "d1", 1), (2, "d1", 1)])
    slow = Table.open(table.location)
    calls = rival(slow, lambda: write(table, [(109, "d1", 100)]))
    added = {"id": expr("source.id + 100"), "dt": "d1", "n": 5}
    with pytest.raises(InvalidRequestError, match="'id': 109"):
        slow.merge(arrow([(9, "d1", 0), (10, "d1", 0)]), "id").when_not_matched_insert(added).execute()
    assert calls
    added["id"] = expr("source.id - 8")
    with pytest.raises(InvalidRequestError, match="'id': 1}"):
        table.merge(arrow([(9, "d1", 0)]), "id").when_not_matched_insert(added).execute()
    assert rows_of(table) == [(1, "d1", 1), (2, "d1", 1), (109, "d1", 100)]


def test_a_key_that_is_twice_in_a_large_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.edits.rows_by_key.LOOKED_UP_ROWS", 1)
    table = make(tmp_path, KINDS["keyed, no partitions"])
    write(table, [(1, "d1", 1)])
    merge = table.merge(arrow([(1, "d1", 10), (1, "d1", 20)]), "id")
    with pytest.raises(InvalidRequestError, match="more than once"):
        merge.when_matched_update({"n": expr("target.n + source.n")}).execute()
    two = table.merge(arrow([(7, "d2", 1), (7, "d3", 2)]), "dt")
    two = two.when_not_matched_insert_all("source.n = 1").when_not_matched_insert_all()
    with pytest.raises(InvalidRequestError, match="more than once"):
        two.execute()
    table.merge(arrow([(2, "d1", 1), (3, "d1", 1)]), "id").when_not_matched_insert_all().execute()
    assert [row[0] for row in rows_of(table)] == [1, 2, 3]


def test_names_by_case_and_values_of_all_types(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "db.odd",
        schema={"id": "INT", "n": "INT", "r": "ROW<x INT>", "m": "MAP<STRING, INT>", "t": "TIMESTAMP(9)"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    table.append(pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([1], pa.int32())}))
    source = pa.table(
        {
            "ID": pa.array([1, 2], pa.int32()),
            "N": pa.array([5, 6], pa.int32()),
            "R": pa.array([{"x": 9}, {"x": 2}], pa.struct([("x", pa.int32())])),
            "t": pa.array([1, None], pa.timestamp("ns")),
        }
    )
    table.merge(source, "Id").when_matched_update_all("SOURCE.n = 5").when_not_matched_insert_all().execute()
    rows = table.scan(["id", "n", "r"]).to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "n": 5, "r": {"x": 9}}, {"id": 2, "n": 6, "r": {"x": 2}}]
    assert table.scan(["id", "t"]).to_arrow().sort_by("id")["t"].cast(pa.int64()).to_pylist() == [1, None]
    for wrong in ({"id": [1], "n": ["5"]}, {"id": [1], "n": [5], "N": [6]}, {"id": [1], "_ROW_KIND": ["-D"]}):
        with pytest.raises(InvalidRequestError):
            table.merge(pa.table(wrong), "id").when_matched_update_all().execute()


@pytest.mark.parametrize("bare", ["n = 1", "s >= 1", "t = 1", "other.n = 1"])
def test_bare_names_are_refused(tmp_path: Path, bare: str) -> None:
    merge = make(tmp_path, KINDS["keyed, no partitions"]).merge(arrow([(1, "d1", 1)]), "id")
    with pytest.raises(InvalidRequestError, match="column of neither side"):
        merge.when_matched_delete(bare)
    with pytest.raises(InvalidRequestError, match="source.column"):
        merge.when_not_matched_insert({"id": expr("target.id"), "dt": "x", "n": 1})


class TestRefused:
    @pytest.mark.parametrize(
        ("clause", "words"),
        [
            (lambda m: m, "no clause"),
            (lambda m: m.when_matched_update({"id": 5}), "primary key"),
            (lambda m: m.when_matched_update({"x": 5}), "'x'"),
            (lambda m: m.when_matched_update({"n": expr("target.nope")}), "nope"),
            (lambda m: m.when_matched_update({}), "name the columns"),
            (lambda m: m.when_matched_update({"n": "text"}), "'n'"),
        ],
    )
    def test_clauses(self, tmp_path: Path, clause: Callable[[Merge], Merge], words: str) -> None:
        table = make(tmp_path, KINDS["keyed, no partitions"])
        write(table, days(range(3), 1, "d1"))
        with pytest.raises(InvalidRequestError, match=words):
            clause(table.merge(arrow([(1, "d1", 5)]), "id")).execute()
        assert len(table.snapshots()) == 1

    @pytest.mark.parametrize(
        ("rows", "twice"), [([(1, "d1", 1), (1, "d1", 2)], 1), ([(77, "d1", 1), (77, "d1", 2)], 77)]
    )
    def test_a_key_that_is_there_twice(self, tmp_path: Path, rows: list[Row], twice: int) -> None:
        table = make(tmp_path, KINDS["keyed, no partitions"])
        write(table, days(range(3), 1, "d1"))
        with pytest.raises(InvalidRequestError, match=f"'id': {twice}"):
            table.merge(arrow(rows), "id").when_matched_update_all().when_not_matched_insert_all().execute()

    @pytest.mark.parametrize("on", [[], "nope", ["id", "m"]])
    def test_columns(self, tmp_path: Path, on: Any) -> None:
        table = make(tmp_path, KINDS["keyed"])
        with pytest.raises(InvalidRequestError):
            table.merge(arrow([]), on)

    def test_tables(self, tmp_path: Path) -> None:
        sums = Catalog(tmp_path).create_table(
            "db.sums",
            schema={"id": "INT", "n": "INT"},
            primary_keys=["id"],
            options={"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
        )
        with pytest.raises(InvalidRequestError, match="would be merged"):
            sums.merge({"id": [1], "n": [1]}, "id").when_matched_update_all().execute()
        sums.merge({"id": [1], "n": [1]}, "id").when_not_matched_insert_all().execute()
        assert sums.scan().to_arrow().to_pylist() == [{"id": 1, "n": 1}]


@pytest.mark.judge
def test_paimon_reads_it(tmp_path: Path, paimon: PaimonJudge) -> None:
    table = make(tmp_path, KINDS["vectors"])
    judge = paimon.table(tmp_path / "db.db" / "t")
    write(table, days(range(40), 1))
    merge = table.merge(arrow(days(range(20, 60), 5)), ["id", "dt"])
    merge.when_matched_update_all("source.id > 30").when_matched_delete().when_not_matched_insert_all().execute()
    assert sorted(judge.read_rows()) == rows_of(table)
