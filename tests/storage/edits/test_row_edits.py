"""Deletes, updates and upserts: the table equals a dict after each, its folded changelog too, and Paimon agrees."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, EditResult, SetOption, expr, sql
from freshet.storage.commit.packed_changelogs import packed_change
from freshet.storage.exceptions import ConflictError, InvalidRequestError, StorageError
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.table import Table
from freshet.storage.table_session import TableSession
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.edits.tables import KINDS, MARKING, MARKING_BUCKETS, MOVING, Row, arrow, days, make, rows_of, write

ALL = {**KINDS, "marking": MARKING, "marking, with buckets": MARKING_BUCKETS, "moving": MOVING}
KEYED = [kind for kind in ALL if ALL[kind][1]]


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", ALL)
def test_rows_are_deleted_and_updated(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    write(table, days(range(40), 1))
    write(table, days(range(40, 60), 2))
    table.compact()
    before = rows_of(table)
    assert table.delete("n = 2 AND id < 50", dry_run=True).rows_deleted == 10
    assert rows_of(table) == before
    result = table.delete("n = 2 AND id < 50")
    assert result.rows_deleted == 10
    expected = [row for row in before if not (row[2] == 2 and row[0] < 50)]
    assert rows_of(table) == expected
    assert table.delete("n = 77").snapshots == ()
    updated = table.update({"n": 9}, "dt = 'd2' AND id >= 1030")
    expected = [(row[0], row[1], 9) if row[1] == "d2" and row[0] >= 1030 else row for row in expected]
    assert updated.rows_updated == sum(row[2] == 9 for row in expected)
    assert rows_of(table) == expected
    table.update({"N": expr("n * 10 + id")}, "id < 3")
    expected = [(row[0], row[1], (row[2] or 0) * 10 + row[0]) if row[0] < 3 else row for row in expected]
    assert rows_of(table) == expected
    table.update({"n": None}, "id = 5")
    expected = [(5, row[1], None) if row[0] == 5 else row for row in expected]
    assert sorted_rows(table) == sorted(expected, key=by_value)
    table.delete("dt = 'd1'")
    assert {row[1] for row in rows_of(table)} == {"d2"}
    write(table, days(range(2), 3, "d1"))
    assert [row for row in rows_of(table) if row[1] == "d1"] == days(range(2), 3, "d1")
    assert table.check(all_snapshots=True).damage == []


def by_value(row: Row) -> tuple[int, str, int]:
    return row[0], row[1], -1 if row[2] is None else row[2]


def sorted_rows(table: Table) -> list[Row]:
    found = Table.open(table.location).scan(["id", "dt", "n"]).to_arrow()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=by_value)


class Oracle:
    """A dict for a keyed table, a list for an append table."""

    def __init__(self, keyed: bool) -> None:
        self.keyed = keyed
        self.rows: list[Row] = []

    def write(self, rows: list[Row]) -> None:
        if self.keyed:
            keys = {row[0] for row in rows}
            self.rows = [row for row in self.rows if row[0] not in keys]
        self.rows += rows

    def replace(self, test: Callable[[Row], bool], change: Callable[[Row], Row | None]) -> None:
        changed = [change(row) if test(row) else row for row in self.rows]
        self.rows = [row for row in changed if row is not None]


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("seed", range(2))
def test_random_edits(tmp_path: Path, kind: str, seed: int) -> None:
    rng = random.Random(f"{kind}-{seed}")
    table = make(tmp_path, ALL[kind])
    oracle = Oracle(bool(ALL[kind][1]))
    for _ in range(14):
        step(rng, table, oracle)
        assert rows_of(table) == sorted(oracle.rows)
    assert table.check(all_snapshots=True).damage == []
    if table.options.changelog_producer.value in ("input", "lookup"):
        assert folded(table) == sorted(oracle.rows)


def step(rng: random.Random, table: Table, oracle: Oracle) -> None:
    low, high = sorted((rng.randrange(60), rng.randrange(60)))
    match rng.randrange(6):
        case 0 | 1:
            ids = sorted(rng.sample(range(60), 12))
            # The partition follows from the id, so that a key is in one of them.
            rows: list[Row] = [(number, f"d{number % 3}", rng.randrange(5)) for number in ids]
            write(table, rows)
            oracle.write(rows)
        case 2:
            table.delete(f"id BETWEEN {low} AND {high} AND n < 3")
            oracle.replace(lambda row: low <= row[0] <= high and (row[2] or 0) < 3, lambda _: None)
        case 3:
            table.update({"n": high}, f"id >= {low} AND dt = 'd1'")
            oracle.replace(lambda row: row[0] >= low and row[1] == "d1", lambda row: (row[0], row[1], high))
        case 4:
            table.update({"n": expr("n + 1")}, f"n = {low % 5}")
            oracle.replace(lambda row: row[2] == low % 5, lambda row: (row[0], row[1], (row[2] or 0) + 1))
        case 5:
            table.compact(full=rng.random() < 0.5)


def folded(table: Table) -> list[Row]:
    rows: dict[tuple[int, str], Row] = {}
    for batch in Table.open(table.location).changelog().to_batches():
        for change in batch.to_pylist():
            key = (change["id"], change["dt"])
            if change[ROW_KIND_COLUMN] in ("+I", "+U"):
                rows[key] = (*key, change["n"])
            else:
                stored = rows.pop(key)
                assert stored == (*key, change["n"]), "a change takes back the row that is there"
    return sorted(rows.values())


@pytest.mark.parametrize("kind", ["input", "lookup", "vectors"])
def test_changelogs_tell_each_row(tmp_path: Path, kind: str) -> None:
    table = make(
        tmp_path, ({**ALL[kind][0], "changelog-producer": "input" if kind == "input" else "lookup"}, *ALL[kind][1:])
    )
    write(table, days(range(4), 1, "d1"))
    start = table.latest_snapshot()
    assert start is not None
    table.update({"n": 5}, "id = 1")
    table.delete("id = 2")
    table.upsert([{"id": 3, "dt": "d1", "n": 7}, {"id": 9, "dt": "d1", "n": 7}], columns="given")
    changes = table.changelog(from_snapshot=start.id + 1).to_arrow().sort_by("_SNAPSHOT_ID").to_pylist()
    told = [(each[ROW_KIND_COLUMN], each["id"], each["n"]) for each in changes]
    assert told == [
        ("-U", 1, 1), ("+U", 1, 5), ("-D", 2, 1), ("-U", 3, 1), ("+U", 3, 7), ("+I", 9, 7),
    ]  # fmt: skip


def rival(slow: Table, act: Callable[[], object], times: int = 1) -> list[str]:
    """Acts just before a snapshot is claimed, so many times."""
    create, calls = slow.store.env.file_io.create_exclusive, list[str]()

    def lost(path: str, data: bytes):  # type: ignore[no-untyped-def]
        if "/snapshot-" in path and len(calls) < times:
            calls.append(path)
            act()
        return create(path, data)

    slow.store.env.file_io.create_exclusive = lost  # type: ignore[method-assign]
    return calls


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KEYED)
def test_rows_that_others_change_meanwhile_are_looked_at_again(tmp_path: Path, kind: str) -> None:
    """Key 1 does not match any more, key 2 has a new value that matches, key 50 is new, key 3 is of another bucket."""
    table = make(tmp_path, ALL[kind])
    write(table, days(range(10), 1, "d1"))
    slow = Table.open(table.location)
    calls = rival(slow, lambda: write(table, [(1, "d1", 7), (2, "d1", 1), (50, "d1", 1)]))
    slow.delete("n = 1 AND id <= 60")
    assert calls
    after = rows_of(table)
    assert (1, "d1", 7) in after, "it was changed before the delete was committed, and does not match any more"
    assert [row for row in after if 2 <= row[0] < 10] == []
    write(table, days(range(10), 1, "d1"))
    slow = Table.open(table.location)
    calls = rival(slow, lambda: write(table, [(1, "d1", 100)]), times=3)
    slow.update({"n": expr("n + 1")}, "id < 5")
    assert calls
    assert (1, "d1", 101) in rows_of(table), "the update is of the value that was there when it was committed"
    assert table.check(all_snapshots=True).damage == []


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ALL)
def test_two_deletes_and_a_compaction_at_the_same_time(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    for n in range(3):
        write(table, days(range(n * 10, n * 10 + 10), n))
    slow = Table.open(table.location)
    calls = rival(slow, lambda: Table.open(table.location).delete("n = 1"))
    slow.delete("n = 2 OR id = 3")
    assert calls
    slow = Table.open(table.location)
    calls = rival(slow, lambda: Table.open(table.location).compact())
    slow.delete("id = 4")
    assert calls
    assert rows_of(table) == [row for row in days(range(10), 0) if row[0] not in (3, 4)]
    assert table.check(all_snapshots=True).damage == []


@pytest.mark.parametrize("kind", ["marking", "marking, with buckets", "append"])
def test_two_deletes_of_rows_of_one_file(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    write(table, days(range(6), 1, "d1"))
    slow = Table.open(table.location)
    calls = rival(slow, lambda: table.delete("id = 4"))
    slow.delete("id = 1")
    assert calls
    assert [row[0] for row in rows_of(table)] == [0, 2, 3, 5]


def test_rows_that_are_not_compacted_yet_are_seen_too(tmp_path: Path) -> None:
    """Where level 0 is hidden, a writer that leaves compaction to others has changed the key."""
    table = make(tmp_path, KINDS["vectors"])
    write(table, days(range(3), 1, "d1"))
    write_only = table.with_options({"write-only": "true"})
    slow = Table.open(table.location)
    calls = rival(slow, lambda: write(write_only, [(1, "d1", 100)]))
    slow.update({"n": expr("n + 1")}, "id = 1")
    assert calls
    assert (1, "d1", 101) in rows_of(table)
    slow = Table.open(table.location)
    calls = rival(slow, lambda: write(write_only, [(2, "d1", 100)]))
    slow.delete("n = 1")
    assert calls
    table.compact()
    assert rows_of(table) == [(1, "d1", 101), (2, "d1", 100)]


def test_a_dry_run_commits_nothing(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["vectors"]).with_options({"write-only": "true"})
    write(table, days(range(3), 1, "d1"))
    count = len(table.snapshots())
    table.delete("id = 1", dry_run=True)
    assert len(table.snapshots()) == count


def test_a_failure_behind_the_commit_leaves_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, KINDS["lookup"])
    write(table, days(range(6), 1, "d1"))

    def fail(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr("freshet.storage.commit.committer.packed_change", PackedOnce(fail))
    with pytest.raises(StorageError, match="full"):
        table.update({"n": 2}, "id = 1")
    monkeypatch.undo()
    assert (1, "d1", 2) in rows_of(table)


class PackedOnce:
    """Packs the APPEND of a commit, and fails at its COMPACT."""

    def __init__(self, fail: Callable[..., None]) -> None:
        self._fail = fail
        self._count = 0

    def __call__(self, *arguments: object) -> object:
        self._count += 1
        if self._count > 1:
            self._fail()
        return packed_change(*arguments)  # type: ignore[arg-type]


def test_columns_of_odd_names_and_types(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "db.odd",
        schema={"_row": "INT", "Größe": "INT", "a b": "STRING", "addr": "ROW<city STRING>", "xs": "ARRAY<INT>"},
        primary_keys=["_row"],
        options={"bucket": "1"},
    )
    table.append([{"_row": 1, "Größe": 5, "a b": "x", "addr": {"city": "Ulm"}, "xs": [1, 2]}])
    table.update({"Größe": expr("`Größe` + xs[0]"), "a b": expr("addr.city")}, "_row = 1")
    slow = Table.open(table.location)
    calls = rival(slow, lambda: table.append([{"_row": 1, "Größe": 7, "a b": "y", "addr": None, "xs": []}]))
    slow.upsert({"_row": [1], "xs": [[9]]}, columns="given")
    assert calls
    assert table.scan().to_arrow().to_pylist() == [{"_row": 1, "Größe": 7, "a b": "y", "addr": None, "xs": [9]}]
    plain = Catalog(tmp_path).create_table("db.append", schema={"_row": "INT", "n": "INT"})
    plain.append([{"_row": 1, "n": 1}, {"_row": 2, "n": 2}])
    plain.update({"n": 9}, "_row = 2")
    plain.delete("_row = 1")
    assert plain.scan().to_arrow().to_pylist() == [{"_row": 2, "n": 9}]


def test_a_delete_of_rows_that_move_is_told_once(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "db.moving",
        schema={"id": "INT", "dt": "STRING", "n": "INT NOT NULL"},
        primary_keys=["id"],
        partition_keys=["dt"],
        options={"bucket": "-1", "changelog-producer": "input"},
    )
    table.append([{"id": 1, "dt": "d1", "n": 5}, {"id": 2, "dt": "d1", "n": 5}])
    table.upsert([{"id": 2, "dt": "d2"}], columns="given")
    table.delete("id = 1")
    changes = table.changelog(from_snapshot=2).to_arrow().to_pylist()
    told = [(each[ROW_KIND_COLUMN], each["id"], each["dt"], each["n"]) for each in changes]
    assert sorted(told) == [("+U", 2, "d2", 5), ("-D", 1, "d1", 5), ("-D", 2, "d1", 5)]
    assert not (tmp_path / "db.db" / "moving" / "dt=__DEFAULT_PARTITION__").exists()


def test_an_overwrite_meanwhile_makes_all_be_computed_again(tmp_path: Path) -> None:
    table = make(tmp_path, KINDS["keyed"])
    write(table, days(range(10), 1, "d1"))
    slow = Table.open(table.location)
    rival(slow, lambda: table.overwrite(arrow([(3, "d1", 5)])))
    assert slow.update({"n": expr("n + 1")}, "id < 5").rows_updated == 1
    assert rows_of(table) == [(3, "d1", 6)], "rows that are gone do not come back"


@pytest.mark.parametrize("kind", ["append", "keyed"])
def test_partitions_expire_behind_an_edit(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    write(table, [(1, "2000-01-01", 1), (2, "2999-01-01", 1), (3, "2999-01-01", 1)])
    table.alter(
        SetOption("partition.expiration-time", "7 d"), SetOption("end-input.check-partition-expire", "true"),
        SetOption("partition.timestamp-formatter", "yyyy-MM-dd"),
    )  # fmt: skip
    assert Table.open(table.location).delete("id = 3").rows_deleted == 1
    assert rows_of(table) == [(2, "2999-01-01", 1)]


class TestUpsert:
    def test_given_columns(self, tmp_path: Path) -> None:
        table = Catalog(tmp_path).create_table(
            "db.wide",
            schema={"id": "INT", "a": "INT", "b": "STRING", "c": "DECIMAL(10, 2)"},
            primary_keys=["id"],
            options={"bucket": 2},
        )
        table.upsert([{"id": 1, "a": 1, "b": "x", "c": None}, {"id": 2, "a": 2, "b": "y", "c": None}])
        result = table.upsert({"id": [2, 3], "b": ["z", "new"]}, columns="given")
        assert (result.rows_updated, result.rows_inserted) == (1, 1)
        found = sorted(tuple(row.values()) for row in Table.open(table.location).scan().to_arrow().to_pylist())
        assert found == [(1, 1, "x", None), (2, 2, "z", None), (3, None, "new", None)]
        with pytest.raises(InvalidRequestError, match=r"the key \{'id': 2\} is in the rows .* 2 times"):
            table.upsert({"id": [2, 2], "b": ["z", "new"]}, columns="given")
        with pytest.raises(InvalidRequestError, match="lack 'id'"):
            table.upsert({"b": ["z"]}, columns="given")
        with pytest.raises(InvalidRequestError, match="no column 'd'"):
            table.upsert({"id": [1], "d": ["z"]}, columns="given")

    def test_all_columns_and_appends(self, tmp_path: Path) -> None:
        table = make(tmp_path, KINDS["keyed"])
        assert table.upsert([]).snapshots == ()
        assert table.append(arrow([(1, "d1", 1)])).rows_inserted == 1
        table.upsert(arrow([(1, "d1", 2), (2, "d1", 2)]))
        assert rows_of(table) == [(1, "d1", 2), (2, "d1", 2)]
        appended = Catalog(tmp_path).create_table("db.a", schema={"id": "INT"})
        appended.append({"id": [1, 1]})
        with pytest.raises(InvalidRequestError, match="append them"):
            appended.upsert({"id": [1]})
        with pytest.raises(InvalidRequestError, match="'all' or 'given'"):
            table.upsert([], columns="some")  # type: ignore[arg-type]


class TestRefused:
    @pytest.mark.parametrize("wrong", [None, "", "nope = 1", "n = 'x' OR"])
    def test_filters(self, tmp_path: Path, wrong: str | None) -> None:
        table = make(tmp_path, KINDS["keyed"])
        write(table, days(range(3), 1))
        for call in (lambda: table.delete(wrong), lambda: table.update({"n": 1}, wrong)):
            with pytest.raises(InvalidRequestError):
                call()
        assert len(rows_of(table)) == 6

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({}, "name the columns"),
            ({"id": 1}, "primary key"),
            ({"dt": "d9"}, "primary key"),
            ({"m": 1}, "'m'"),
            ({"n": "n + 1"}, r"'n' .* is INT, and 'n \+ 1' is a text; SQL .* is expr\('n \+ 1'\)"),
            ({"n": 2**40}, "n"),
            ({"n": expr("m + 1")}, "'m'"),
        ],
    )
    def test_values(self, tmp_path: Path, values: dict[str, object], words: str) -> None:
        table = make(tmp_path, KINDS["keyed"])
        write(table, days(range(3), 1))
        with pytest.raises(InvalidRequestError, match=words):
            table.update(values, "id = 1")
        assert len(table.snapshots()) == 1

    @pytest.mark.parametrize(
        "text", ["", "n +", "(SELECT 1)", "sum(n)", "row_number() OVER (ORDER BY n)", "explode(xs)"]
    )
    def test_expressions(self, text: str) -> None:
        with pytest.raises(InvalidRequestError):
            expr(text)


def engine_table(folder: Path, options: dict[str, str], **columns: str) -> Table:
    return Catalog(folder).create_table(
        "db.e", schema={"id": "INT", **columns}, primary_keys=["id"], options={"bucket": "1", **options}
    )


class TestEngines:
    def test_partial_update(self, tmp_path: Path) -> None:
        table = engine_table(tmp_path, {"merge-engine": "partial-update"}, a="INT", b="STRING")
        table.upsert([{"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"}])
        table.update({"a": expr("a + 5")}, "id = 2")
        assert table.scan().to_arrow().sort_by("id").to_pylist()[1] == {"id": 2, "a": 7, "b": "y"}
        with pytest.raises(InvalidRequestError, match="NULL keeps what is stored"):
            table.update({"a": None}, "id = 2")
        with pytest.raises(InvalidRequestError, match="remove-record-on-delete"):
            table.delete("id = 2")

    def test_partial_update_that_removes(self, tmp_path: Path) -> None:
        options = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
        table = engine_table(tmp_path, options, a="INT")
        table.upsert([{"id": 1, "a": 1}, {"id": 2, "a": 2}])
        table.delete("id = 2")
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "a": 1}]

    def test_sequence_groups(self, tmp_path: Path) -> None:
        options = {"merge-engine": "partial-update", "fields.s.sequence-group": "a", "fields.t.sequence-group": "b"}
        table = engine_table(tmp_path, options, s="INT", a="INT", t="INT", b="INT")
        table.upsert([{"id": 1, "s": 5, "a": 1, "t": 5, "b": 1}, {"id": 2, "s": 5, "a": 2, "t": None, "b": None}])
        table.update({"a": None}, "id = 1")
        table.update({"s": 6, "a": 7}, "id = 2")
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        assert rows == [{"id": 1, "s": 5, "a": None, "t": 5, "b": 1}, {"id": 2, "s": 6, "a": 7, "t": None, "b": None}]
        with pytest.raises(InvalidRequestError, match="goes back"):
            table.update({"s": 4}, "id = 2")
        with pytest.raises(InvalidRequestError, match="without a value in it"):
            table.update({"b": 4}, "id = 2")

    def test_aggregation(self, tmp_path: Path) -> None:
        options = {
            "merge-engine": "aggregation", "fields.total.aggregate-function": "sum",
            "fields.best.aggregate-function": "max", "fields.note.aggregate-function": "last_non_null_value",
            "fields.last.aggregate-function": "last_value",
        }  # fmt: skip
        table = engine_table(tmp_path, options, total="INT", best="INT", note="STRING", last="STRING")
        table.upsert([{"id": 1, "total": 5, "best": 5, "note": "x", "last": "p"}])
        table.upsert([{"id": 1, "total": 6, "best": 3, "note": None, "last": "q"}])
        table.update({"note": "y"}, "id = 1")
        table.update({"last": None}, "id = 1")
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "total": 11, "best": 5, "note": "y", "last": None}]
        for column in ("total", "best"):
            with pytest.raises(InvalidRequestError, match="would be merged with the stored one"):
                table.update({column: 1}, "id = 1")
        with pytest.raises(InvalidRequestError, match="remove-record-on-delete"):
            table.delete("id = 1")
        assert table.scan().to_arrow().to_pylist()[0]["total"] == 11

    def test_sequence_field(self, tmp_path: Path) -> None:
        table = engine_table(tmp_path, {"sequence.field": "v"}, v="INT", a="STRING")
        table.upsert([{"id": 1, "v": 9, "a": "x"}, {"id": 2, "v": 9, "a": "x"}])
        table.update({"a": "y"}, "id = 1")
        table.delete("id = 2")
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 9, "a": "y"}]
        with pytest.raises(InvalidRequestError, match="goes back"):
            table.update({"v": 8}, "id = 1")
        table.update({"v": 10, "a": "z"}, "id = 1")
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 10, "a": "z"}]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"merge-engine": "first-row"}, "first-row"),
            ({"bucket": "-2"}, "bucket=-2"),
            ({"ignore-delete": "true"}, "ignore-delete"),
            ({"rowkind.field": "a"}, "rowkind.field"),
        ],
    )
    def test_refused_naming_the_reason(self, tmp_path: Path, options: dict[str, str], words: str) -> None:
        table = engine_table(tmp_path, options, a="STRING")
        with pytest.raises(InvalidRequestError, match=words):
            table.delete("id = 1")


@pytest.mark.few(5)
@pytest.mark.judge
@pytest.mark.parametrize("kind", ALL)
def test_paimon_reads_what_is_left(tmp_path: Path, paimon: PaimonJudge, kind: str) -> None:
    table = make(tmp_path, ALL[kind])
    judge = paimon.table(tmp_path / "db.db" / "t")
    write(table, days(range(40), 1))
    table.compact()
    table.delete("id < 10 OR id = 1020")
    assert sorted(judge.read_rows()) == rows_of(table)
    table.update({"n": 5}, "id > 30")
    assert sorted(judge.read_rows()) == rows_of(table)
    if table.options.bucket > 0:
        judge.write([(3, "d1", 7), (35, "d1", 7)])
        table.delete("id = 3")
        assert sorted(judge.read_rows()) == rows_of(table)
    table.compact()
    assert sorted(judge.read_rows()) == rows_of(table)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["keyed", "lookup", "vectors", "append with buckets"])
def test_rows_are_written_once_more_where_the_table_is_rescaled_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As deletes and updates are planned again: who calls `append` has no stream that could be started again."""
    table = make(tmp_path, ALL[kind])
    write(table, days(range(8), 1))
    waiting: list[int] = []
    commit = TableSession.commit

    def rescaled_first(session: TableSession, *arguments: Any, **named: Any) -> Any:
        if waiting:
            Table.open(table.location).rescale(waiting.pop())
        return commit(session, *arguments, **named)

    monkeypatch.setattr(TableSession, "commit", rescaled_first)
    expected = rows_of(table)
    for number, add in enumerate((table.append, lambda rows: _inserted(tmp_path, rows)), 2):
        rows = days(range(number * 20, number * 20 + 4), number)
        waiting.append(number + 2)
        assert add(arrow(rows)).rows_inserted == len(rows)
        expected = sorted([*expected, *rows])
        assert not waiting and sorted(rows_of(table)) == expected
    waiting.append(7)
    with pytest.raises(ConflictError, match="was rescaled meanwhile|repeat the change"):
        table.append(arrow(days(range(90, 94), 9)).to_reader())
    assert sorted(rows_of(table)) == expected
    assert table.check(all_snapshots=True).damage == []


def _inserted(warehouse: Path, rows: pa.Table) -> EditResult:
    values = ", ".join(str(tuple(row.values())) for row in rows.to_pylist())
    edit = sql(f"INSERT INTO db.t VALUES {values}", Catalog(warehouse)).edit
    assert edit is not None
    return edit
