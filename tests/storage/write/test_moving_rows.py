"""Tables whose rows move between partitions: histories beside a dict, two writers at once, and what happens to the index."""  # noqa: E501

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, OutdatedAssignmentError, RetryableError
from freshet.storage.place_index import index_build
from freshet.storage.place_index.index_database import IndexDatabase, KeyShare, LockedIndexError, bucket_of
from freshet.storage.place_index.share_index import ShareIndex
from freshet.storage.scan.planner import plan_scan
from freshet.storage.table import Table
from tests.kit.at_once import at_once
from tests.kit.cache_roots import place_indexes
from tests.kit.hypothesis_profile import examples

COLUMNS = {"k": "BIGINT NOT NULL", "p": "STRING NOT NULL", "v": "BIGINT"}
ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}
Row = tuple[int, str, int | None, str]
"""Key, partition, value, kind."""


PLANS = ("deltas_at_once", "plan_scan")
"""What is called before changes, and before the whole table, are read for the index."""


def create(path: Path, **options: str) -> Table:
    given = {"dynamic-bucket.target-row-num": "3"} | {key.replace("_", "-"): value for key, value in options.items()}
    given.setdefault("cross-partition-upsert.index-dir", str(path / "index"))
    return Catalog(str(path / "lake")).create_table(
        "db.t", schema=COLUMNS, primary_keys=["k"], partition_keys=["p"], options=given
    )


def opened(path: Path) -> Table:
    return Catalog(str(path / "lake")).table("db.t")


def given_rows(rows: list[Row]) -> list[dict[str, Any]]:
    return [{"k": k, "p": p, "v": v, "_ROW_KIND": kind} for k, p, v, kind in rows]


def write(table: Table, *rows: Row, user: str = "w") -> None:
    with table.writer(user) as writer:
        writer.write(given_rows(list(rows)))
        writer.commit()


def found(table: Table) -> dict[int, tuple[str, int | None]]:
    rows = table.scan().to_arrow().to_pylist()
    keys = [row["k"] for row in rows]
    assert len(keys) == len(set(keys)), "a key is there twice"
    return {row["k"]: (row["p"], row["v"]) for row in rows}


def indexed(table: Table, share: KeyShare, folder: Path) -> dict[bytes, tuple[bytes, int]]:
    """What an index has that is brought forward, or built, now; it is left as it is."""
    latest = table.store.snapshots.latest()
    index = ShareIndex(table.store, latest, share)
    try:
        entries = {key: bucket_of(value) for key, value in index._database._database.items() if key}
        counts: dict[tuple[bytes, int], int] = {}
        for place in entries.values():
            counts[place] = counts.get(place, 0) + 1
        assert counts == dict(index.counts)
        assert index.snapshot_id == (0 if latest is None else latest.id)
    finally:
        index.close()
    return entries


class Oracle:
    """A dict per merge engine: key to partition and value."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.rows: dict[int, tuple[str, int | None]] = {}

    def take(self, rows: list[Row]) -> None:
        for k, p, v, kind in rows:
            old = self.rows.get(k)
            if kind == "-D":
                self.rows.pop(k, None)
            elif old is None or self.engine == "deduplicate":
                self.rows[k] = p, v
            elif self.engine == "partial-update":
                self.rows[k] = old[0], old[1] if v is None else v
            elif self.engine == "aggregation":
                values = [each for each in (old[1], v) if each is not None]
                self.rows[k] = old[0], sum(values) if values else None


def histories(engine: str) -> st.SearchStrategy[list[list[list[Row]]]]:
    kinds = ["+I", "+I", "-D"] if engine == "deduplicate" else ["+I"]
    row = st.tuples(
        st.integers(0, 7), st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)), st.sampled_from(kinds)
    )
    writes = st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=3)
    return st.lists(writes, min_size=1, max_size=5)


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_histories_beside_a_dict(engine: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("history")
    producer = data.draw(st.sampled_from(["none", "lookup"] if engine == "first-row" else ["input", "lookup"]))
    if engine == "first-row":
        producer = "none"
    table, oracle = create(path, changelog_producer=producer, **ENGINES[engine]), Oracle(engine)
    for commit in data.draw(histories(engine)):
        with table.writer("w") as writer:
            for rows in commit:
                writer.write(given_rows(rows))
                oracle.take(rows)
            writer.commit()
        if engine != "first-row" or table.store.options.write_only:
            assert found(table) == oracle.rows
        if producer == "lookup":
            assert folded(table) == oracle.rows
        _check_index(table, path)
    if engine == "first-row":
        table.compact(full=True)
    assert found(table) == oracle.rows
    assert not table.check().damage


def _check_index(table: Table, path: Path) -> None:
    """An index that follows commits is the one that is built."""
    for share in (KeyShare(), KeyShare(0, 2), KeyShare(1, 2)):
        followed = indexed(table, share, path)
        shutil.move(path / "index", path / "followed")
        built = indexed(table, share, path)
        shutil.rmtree(path / "index")
        shutil.move(path / "followed", path / "index")
        assert followed == built


def folded(table: Table) -> dict[int, tuple[str, int | None]]:
    """The changelog from the beginning, applied to a dict of (partition, key)."""
    rows: dict[tuple[str, int], int | None] = {}
    for row in table.changelog(from_snapshot=1).to_arrow().to_pylist():
        place = row["p"], row["k"]
        if row["_ROW_KIND"] in ("-D", "-U"):
            assert rows.pop(place) == row["v"]
        else:
            rows[place] = row["v"]
    keys = [key for _, key in rows]
    assert len(keys) == len(set(keys))
    return {key: (partition, value) for (partition, key), value in rows.items()}


def test_two_writers_at_once_leave_each_key_once(tmp_path: Path) -> None:
    """Both place the same keys in different partitions, then both commit; sums count every row once."""
    create(tmp_path, **ENGINES["aggregation"])
    refused, both_wrote = [0, 0], threading.Barrier(2, timeout=120)
    batches = 6

    def run(number: int) -> None:
        with opened(tmp_path).writer(f"w{number}") as writer:
            for batch in range(batches):
                writer.write(given_rows([(key, "ab"[number], 1, "+I") for key in range(batch * 5, batch * 5 + 10)]))
                both_wrote.wait()
                while True:
                    try:
                        writer.commit(batch)
                    except OutdatedAssignmentError:
                        refused[number] += 1
                    else:
                        break
                both_wrote.wait()

    at_once([partial(run, number) for number in range(2)])
    assert sum(refused) == batches
    expected: dict[int, int] = {}
    for batch in range(batches):
        for key in range(batch * 5, batch * 5 + 10):
            expected[key] = expected.get(key, 0) + 2
    assert {key: value for key, (_, value) in found(opened(tmp_path)).items()} == expected
    assert not opened(tmp_path).check().damage


@pytest.mark.parametrize("engine", ENGINES)
def test_a_refused_writer_keeps_its_rows_as_they_came(engine: str, tmp_path: Path) -> None:
    table, oracle = create(tmp_path, **ENGINES[engine]), Oracle(engine)
    write(table, (1, "a", 1, "+I"), (2, "a", 2, "+I"))
    mine: list[Row] = [(1, "b", 10, "+I"), (3, "b", 30, "+I"), (3, "c", 31, "+I"), (2, "a", 20, "+I")]
    theirs: list[Row] = [(3, "d", 300, "+I"), (1, "d", None, "+I")]
    with table.writer("mine") as writer:
        writer.write(given_rows(mine))
        write(opened(tmp_path), *theirs, user="theirs")
        with pytest.raises(OutdatedAssignmentError, match="another writer has committed rows"):
            writer.commit(4)
        writer.commit(4)
    oracle.take([(1, "a", 1, "+I"), (2, "a", 2, "+I")])
    oracle.take(theirs)
    oracle.take(mine)
    table.compact(full=True)
    assert found(table) == oracle.rows
    assert not table.check().damage


def test_a_compaction_beside_a_writer_is_no_conflict(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, (1, "a", 1, "+I"))
    write(table, (1, "a", 2, "+I"))
    with table.writer("mine") as writer:
        writer.write(given_rows([(1, "b", 3, "+I")]))
        assert opened(tmp_path).compact(full=True).snapshots
        writer.commit()
    assert found(table) == {1: ("b", 3)}


def index_folders(path: Path) -> list[Path]:
    return sorted(place_indexes(path / "index").glob("*/*.rocks"))


def test_keys_are_looked_up_in_all_partitions(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, *((key, "abc"[key % 3], key, "+I") for key in range(20)))
    write(table, (4, "z", -4, "+I"), (5, "c", 0, "-D"))
    rows = table.lookup(pa.table({"k": [4, 5, 6, 100, 4]})).by_key().to_pylist()
    assert [(row["p"], row["v"]) if row["k"] is not None else None for row in rows] == [
        ("z", -4),
        None,
        ("a", 6),
        None,
        ("z", -4),
    ]


def test_a_locked_index_is_left_to_its_writer(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, (1, "a", 1, "+I"))
    first = table.writer("first")
    first.write(given_rows([(1, "b", 2, "+I")]))
    (folder,) = index_folders(tmp_path)
    with pytest.raises(LockedIndexError):
        IndexDatabase(str(folder))
    write(opened(tmp_path), (1, "c", 3, "+I"), user="second")
    assert len(index_folders(tmp_path)) == 2
    with pytest.raises(OutdatedAssignmentError):
        first.commit()
    first.commit()
    first.close()
    assert found(table) == {1: ("b", 2)}


def damage_nothing(folder: Path) -> None:
    pass


def damage_remove(folder: Path) -> None:
    shutil.rmtree(folder)


def damage_cut(folder: Path) -> None:
    for file in folder.iterdir():
        if file.suffix in (".log", ".sst"):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def damage_manifest(folder: Path) -> None:
    (folder / "CURRENT").write_text("MANIFEST-999999\n")


def damage_files(folder: Path) -> None:
    for file in folder.glob("*.sst"):
        file.unlink()


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", [damage_nothing, damage_remove, damage_cut, damage_manifest, damage_files])
def test_a_damaged_index_is_built_again(damage: Any, tmp_path: Path) -> None:
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "100"})
    write(table, *((key, "abc"[key % 3], key, "+I") for key in range(1000)))
    write(table, (2000, "a", 0, "+I"))
    (folder,) = index_folders(tmp_path)
    damage(folder)
    write(table, *((key, "z", key, "+I") for key in range(0, 1000, 7)), (2000, "z", 1, "+I"))
    expected = {key: ("z" if key % 7 == 0 else "abc"[key % 3], key) for key in range(1000)} | {2000: ("z", 1)}
    assert found(table) == expected


def test_an_index_that_is_removed_under_its_writer_is_closed_and_built_again(tmp_path: Path) -> None:
    table = create(tmp_path)
    with table.writer("w") as writer:
        for number in range(3):
            writer.write(given_rows([(number, "a", 1, "+I")]))
            writer.commit()
            if number == 1:
                damage_remove(tmp_path / "index")
    write(table, (0, "b", 2, "+I"))
    assert found(table) == {0: ("b", 2), 1: ("a", 1), 2: ("a", 1)}


def test_an_index_older_than_history_is_built_again(tmp_path: Path) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = create(tmp_path, **options)
    write(table, (1, "a", 1, "+I"))
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "index", kept)
    for turn in range(4):
        write(table, (1, "bcde"[turn], turn, "+I"), (2 + turn, "a", 0, "+I"))
    shutil.rmtree(tmp_path / "index")
    shutil.copytree(kept, tmp_path / "index")
    write(table, (1, "f", 9, "+I"), (3, "f", 9, "+I"))
    assert found(table) == {1: ("f", 9), 2: ("a", 0), 3: ("f", 9), 4: ("a", 0), 5: ("a", 0)}


@pytest.mark.parametrize("plan", PLANS)
def test_snapshots_that_expire_while_the_index_is_made_are_no_damage(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program expires what the index is brought forward by, or built from, between its plan and its reads."""
    table = create(tmp_path)
    with opened(tmp_path).writer("late") as late:
        late.write(given_rows([(1, "a", 1, "+I")]))
        late.commit()
        write(table, (2, "b", 2, "+I"), user="other")
        read = getattr(index_build, plan)

        def then_expires(*arguments: Any, **named: Any) -> Any:
            planned = read(*arguments, **named)
            monkeypatch.undo()
            write(table, (2, "b", 3, "+I"), (3, "c", 3, "+I"), user="other")
            table.compact(full=True)
            table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
            return planned

        monkeypatch.setattr(index_build, plan, then_expires)
        if plan == "plan_scan":
            late.close()
            shutil.rmtree(tmp_path / "index")
        rows = [(2, "a", 4, "+I"), (3, "a", 5, "+I")]
        with opened(tmp_path).writer("next") if plan == "plan_scan" else late as writer:
            for _ in range(2):  # the first may be refused: others have committed
                writer.write(given_rows(rows))
                try:
                    writer.commit()
                    break
                except OutdatedAssignmentError:
                    writer.abort()
    assert found(table) == {1: ("a", 1), 2: ("a", 4), 3: ("a", 5)}


def test_a_task_whose_base_expires_while_its_index_is_built_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    write(table, (1, "a", 1, "+I"))
    write(table, (1, "a", 2, "+I"))
    shutil.rmtree(tmp_path / "index")

    def then_expires(*arguments: Any, **named: Any) -> Any:
        planned = plan_scan(*arguments, **named)
        table.compact(full=True)
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
        return planned

    monkeypatch.setattr("freshet.storage.place_index.index_build.plan_scan", then_expires)
    keys = pa.table({"k": [1], "p": ["b"]})
    with (
        closing(table.engine.key_mover(base_snapshot_id=2, share=KeyShare(0, 1))) as mover,
        pytest.raises(RetryableError, match="run the batch again"),
    ):
        mover.move(keys)


@pytest.mark.parametrize("keys", [["k"], ["k", "p"]])
def test_a_task_of_a_renamed_table_is_told_so(tmp_path: Path, keys: list[str]) -> None:
    """It was told that the snapshot had expired, and that the table should keep snapshots longer."""
    catalog = Catalog(str(tmp_path / "lake"))
    table = catalog.create_table("db.t", schema=COLUMNS, primary_keys=keys, partition_keys=["p"])
    write(table, (1, "a", 1, "+I"))
    task = Catalog(str(tmp_path / "lake")).table("db.t").engine
    catalog.rename_table("db.t", "db.u")
    make = partial(task.key_mover, share=KeyShare(0, 1)) if keys == ["k"] else partial(task.key_assigner, count=1)
    with pytest.raises(NotFoundError, match="was dropped or renamed"):
        make(base_snapshot_id=1)


def test_a_table_that_was_dropped_and_created_again_has_another_index(tmp_path: Path) -> None:
    write(create(tmp_path), (1, "a", 1, "+I"), (2, "a", 1, "+I"))
    Catalog(str(tmp_path / "lake")).drop_table("db.t")
    table = create(tmp_path)
    write(table, (1, "b", 2, "+I"))
    assert found(table) == {1: ("b", 2)}
    assert sum(file.file.row_count for file in table.files()) == 1, "no -D for the row of the former table"


def test_a_full_disk_below_the_index_is_said_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file where the folder should be")
    table = create(tmp_path)
    with table.writer("w") as writer:
        with pytest.raises(Exception, match="index"):
            writer.write(given_rows([(1, "a", 1, "+I")]))
        (tmp_path / "index").unlink()
        writer.abort()
        writer.write(given_rows([(1, "a", 1, "+I")]))
        writer.commit()
    assert found(table) == {1: ("a", 1)}


def test_places_of_a_batch_are_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.write.partition_moves.PendingPlaces.__init__.__defaults__", (50,))
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "100"})
    with table.writer("w") as writer:
        for start in range(0, 400, 40):
            writer.write(given_rows([(key, "a", start, "+I") for key in range(start, start + 80)]))
        writer.write(given_rows([(key, "b", -1, "+I") for key in range(0, 480, 3)]))
        writer.commit()
    assert {key: place for key, (place, _) in found(table).items()} == {
        key: "b" if key % 3 == 0 else "a" for key in range(440)
    } | {key: "b" for key in range(440, 480) if key % 3 == 0}


def test_an_expired_entry_counts_as_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path, **{"cross-partition-upsert.index-ttl": "1 h"})
    write(table, (1, "a", 1, "+I"), (2, "a", 1, "+I"))
    write(table, (1, "b", 2, "+I"))
    assert found(table) == {1: ("b", 2), 2: ("a", 1)}
    assert table.store.options.cross_partition_upsert_index_ttl_ms == 3_600_000
    later_s = table.store.env.now_ms() // 1000 + 10
    monkeypatch.setattr(ShareIndex, "_since_s", lambda _: later_s)
    write(table, (2, "b", 3, "+I"))
    assert [
        (row["k"], row["p"])
        for row in table.scan().to_arrow().sort_by([("k", "ascending"), ("p", "ascending")]).to_pylist()
    ] == [(1, "b"), (2, "a"), (2, "b")], "the price of the option"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket": "4"}, "needs dynamic buckets"),
        ({"sequence.field": "v"}, "sequence.field does not say"),
        ({"ignore-delete": "true"}, "ignore-delete would pass over the deletes"),
        ({"bucket-key": "k"}, "bucket-key has no meaning"),
    ],
)
def test_what_does_not_go_with_moving_rows_is_refused(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        create(tmp_path, **options)


def test_a_hash_index_is_not_repaired_into_such_a_table(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, (1, "a", 1, "+I"))
    with pytest.raises(InvalidRequestError, match="has no hash index: its rows move"):
        table.repair_hash_indexes()
    assert len(table.snapshots()) == 1


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path)
    monkeypatch.setattr("freshet.storage.place_index.share_index.is_rocksdb_installed", lambda: False)
    with table.writer("w") as writer:
        with pytest.raises(InvalidRequestError, match=r"freshet-lake\[rocksdb\]"):
            writer.write(given_rows([(1, "a", 1, "+I")]))
        writer.abort()
