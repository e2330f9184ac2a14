"""Tables with dynamic buckets (`bucket=-1`): assignment, the index on disk, and what happens to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog
from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import (
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    OutdatedAssignmentError,
)
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.metadata.hash_index_store import decode_hashes
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from freshet.storage.write.task_writer import TaskWriter
from tests.kit.at_once import at_once
from tests.kit.bucket_store import CHOSEN, copy_over

SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


def create(path: Path, partitioned: bool = False, **options: str) -> Table:
    given = {"bucket": "-1", **{key.replace("_", "-"): value for key, value in options.items()}}
    return Catalog(str(path)).create_table(
        "db.t",
        schema={"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "v": "BIGINT"},
        primary_keys=["p", "k"],
        partition_keys=["p"] if partitioned else [],
        options=given,
    )


def rows(keys: Iterable[int], value: int = 1, p: int = 0) -> pa.Table:
    listed = list(keys)
    return pa.table({"p": pa.array([p] * len(listed), pa.int32()), "k": listed, "v": [value] * len(listed)})


def write(table: Table, *parts: pa.Table, user: str = "w") -> None:
    with table.writer(user) as writer:
        for part in parts:
            writer.write(part)
        writer.commit()


def found(table: Table) -> dict[int, int]:
    read = table.scan(["k", "v"]).to_arrow()
    keys = read.column("k").to_pylist()
    assert len(keys) == len(set(keys)), "a key is in two buckets"
    return dict(zip(keys, read.column("v").to_pylist(), strict=True))


def counts(table: Table) -> list[dict[int, int]]:
    """Entries by bucket, partition by partition; no hash is in two of a partition's files."""
    store = table.store
    listed = []
    for _, files in sorted(store.hash_indexes.files(store.snapshots.latest()).items()):
        hashes = [each for file in files.values() for each in decode_hashes(store.hash_indexes.read(file)).tolist()]
        assert len(hashes) == len(set(hashes))
        listed.append({bucket: file.row_count for bucket, file in sorted(files.items())})
    return listed


def index_files(table: Table) -> list[Path]:
    return sorted(Path(table.store.paths.index_file("")).glob("index-*"))


def test_two_writers_at_once_give_each_key_one_bucket(tmp_path: Path) -> None:
    """Both assign the same new keys, then both commit; no row is lost or counted twice."""
    create(tmp_path, **{"dynamic-bucket.target-row-num": "100", **SUM})
    refused, both_wrote = [0, 0], threading.Barrier(2, timeout=120)
    batches, size = 8, 60

    def run(number: int) -> None:
        table = Catalog(str(tmp_path)).table("db.t")
        with table.writer(f"w{number}") as writer:
            for batch in range(batches):
                writer.write(rows(range(batch * 30, batch * 30 + size)))
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
    table = Catalog(str(tmp_path)).table("db.t")
    expected: dict[int, int] = {}
    for batch in range(batches):
        for key in range(batch * 30, batch * 30 + size):
            expected[key] = expected.get(key, 0) + 2
    assert found(table) == expected
    (by_bucket,) = counts(table)
    assert sum(by_bucket.values()) == len(expected)
    assert not table.check().damage


Merge = Callable[[int, int], int]

KINDS: Mapping[str, tuple[dict[str, str], Merge]] = {
    **{
        producer: ({"changelog-producer": producer}, lambda _, new: new)
        for producer in ("none", "input", "lookup", "full-compaction")
    },
    "partial-update": ({"merge-engine": "partial-update", "changelog-producer": "lookup"}, lambda _, new: new),
    "first-row": ({"merge-engine": "first-row", "changelog-producer": "lookup"}, lambda old, _: old),
    "sum": ({**SUM, "changelog-producer": "lookup"}, lambda old, new: old + new),
    "vectors": ({"deletion-vectors.enabled": "true"}, lambda _, new: new),
}
"""Options of producers and engines, and what they make of two rows of a key."""


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_refused_writer_keeps_its_rows_and_assigns_them_anew(tmp_path: Path, kind: str, partitioned: bool) -> None:
    options, merge = KINDS[kind]
    table = create(tmp_path, partitioned, **{"dynamic-bucket.target-row-num": "10", **options})
    first, second = table.writer("a"), table.writer("b")
    first.write(rows(range(10, 40), 1))
    second.write(rows(range(25), 2))
    second.write(rows(range(5), 3))
    first.commit(0)
    with pytest.raises(OutdatedAssignmentError, match="another writer has added keys"):
        second.commit(5)
    second.commit()
    second.write(rows([0, 39], 4))
    second.commit()
    first.close()
    second.close()
    expected: dict[int, int] = {}
    for keys, value in ((range(10, 40), 1), (range(25), 2), (range(5), 3), ((0, 39), 4)):
        expected |= {key: merge(expected[key], value) if key in expected else value for key in keys}
    assert found(table) == expected
    assert counts(table) == [{0: 10, 1: 10, 2: 10, 3: 10}]
    if table.options.changelog_producer != "none":
        state: dict[int, int] = {}
        for row in table.changelog().to_arrow().to_pylist():
            if row["_ROW_KIND"] in ("+I", "+U"):
                state[row["k"]] = row["v"]
        assert state == found(table)
    asked = rows([0, 4, 12, 39, 70], p=0).select(["p", "k"])
    looked_up = table.lookup(asked).by_key().column("v").to_pylist()
    assert looked_up == [expected.get(key) for key in (0, 4, 12, 39, 70)]
    assert not table.check().damage


@pytest.mark.parametrize("partitioned", [False, True])
def test_keys_are_looked_up_in_all_buckets(tmp_path: Path, partitioned: bool) -> None:
    """The bucket does not follow from the key; deleted keys are not there, nor those of another partition."""
    table = create(tmp_path, partitioned, **{"dynamic-bucket.target-row-num": "7"})
    write(table, rows(range(40), 1), rows(range(30, 60), 2, p=1))
    write(table, rows(range(0, 40, 2), 3), rows([5, 6]).append_column("_ROW_KIND", pa.array(["-D", "-D"])))
    table.compact(full=True)
    write(table, rows([7, 39], 9))
    if partitioned:
        assert sum(map(len, counts(table))) == 6 + 5
    keys = [39, 0, 6, 7, 5, 38, 100, 33, 39]
    asked = pa.concat_tables([rows(keys, p=0), rows(keys, p=1)]).select(["p", "k"])
    found = table.lookup(asked, columns=["v"]).by_key()["v"].to_pylist()
    assert found == [9, 3, None, 9, None, 3, None, 1, 9, 2, None, None, None, None, 2, None, 2, 2]
    assert table.lookup(asked).rows.num_rows == 8, "each once"


def test_what_was_refused_is_not_committed_by_a_close(tmp_path: Path) -> None:
    table = create(tmp_path)
    first, second = table.writer("a"), table.writer("b")
    first.write(rows([1]))
    second.write(rows([2]))
    first.commit()
    with pytest.raises(ConflictError):
        second.commit()
    second.abort()
    second.write(rows([3]))
    second.commit()
    second.close()
    first.close()
    assert found(table) == {1: 1, 3: 1}
    assert counts(table) == [{0: 2}]


def test_keys_known_to_both_do_not_refuse_each_other(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, rows(range(10)))
    first, second = table.writer("a"), table.writer("b")
    first.write(rows(range(10), 5))
    second.write(rows(range(3), 6))
    first.commit()
    second.commit()
    first.close()
    second.close()
    assert found(table) == {**dict.fromkeys(range(10), 5), **dict.fromkeys(range(3), 6)}
    assert len(index_files(table)) == 1, "an index without new keys is not written again"


def test_buckets_are_filled_from_the_lowest(tmp_path: Path) -> None:
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "7"})
    write(table, rows(range(5)))
    assert counts(table) == [{0: 5}]
    write(table, rows(range(3, 12)), rows(range(12, 30)))
    assert counts(table) == [{0: 7, 1: 7, 2: 7, 3: 7, 4: 2}]
    assert {entry.total_buckets for entry in table.files()} == {-1}
    assert found(table) == dict.fromkeys(range(30), 1)


def test_the_largest_number_of_buckets_counts_for_each_partition(tmp_path: Path) -> None:
    table = create(tmp_path, True, **{"dynamic-bucket.target-row-num": "2", "dynamic-bucket.max-buckets": "3"})
    write(table, rows(range(20)), rows(range(4), p=1))
    first, second = counts(table)
    assert first.keys() == {0, 1, 2}
    assert sum(first.values()) == 20
    assert second == {0: 2, 1: 2}


@pytest.mark.slow
@pytest.mark.parametrize("many", [3_000, pytest.param(12_000, marks=pytest.mark.slow)])
def test_a_table_of_very_many_buckets(many: int) -> None:
    """One key each; the format has 32,767 of them. In memory, where it is the program that takes its time: 2 ms for the
    file of each. What takes more than that for each of many shows at four times as many, too.
    """
    table = Catalog("/lake", env=Env(MemoryFileIO())).create_table(
        "db.t",
        schema={"k": "BIGINT NOT NULL", "v": "BIGINT"},
        primary_keys=["k"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "1"},
    )
    for start, end, value in ((0, many, 1), (many - 10, many + 10, 2)):
        write(table, pa.table({"k": range(start, end), "v": [value] * (end - start)}))
    assert counts(table) == [dict.fromkeys(range(many + 10), 1)]
    assert len(table.files()) == many + 20
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    for key, values in ((many - 10, [2]), (many + 10, [])):
        asked = table.lookup(pa.table({"k": [key]}, schema=schema), ["v"]).rows
        assert asked["v"].drop_null().to_pylist() == values
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)
    assert [each.id for each in table.snapshots()] == [2]
    assert counts(table) == [dict.fromkeys(range(many + 10), 1)], (
        "the index files of buckets without new keys are there"
    )
    assert not table.check().damage


def test_the_index_goes_with_the_append_and_not_with_compactions(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, rows(range(5)))
    (written,) = index_files(table)
    table.compact(full=True)
    snapshots = list(table.snapshots())
    assert {each.commit_kind for each in snapshots} >= {CommitKind.APPEND, CommitKind.COMPACT}
    assert len({each.index_manifest for each in snapshots}) == 1
    assert index_files(table) == [written]
    write(table, rows(range(100, 104)))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)
    assert index_files(table) != [written], "the index file that nothing names any more has gone"
    assert len(index_files(table)) == 1
    assert counts(table) == [{0: 9}]


def test_deletes_of_unknown_keys_are_indexed_as_paimon_does(tmp_path: Path) -> None:
    table = create(tmp_path)
    deleted = rows([7]).append_column("_ROW_KIND", pa.array(["-D"]))
    write(table, rows([1]), deleted)
    assert counts(table) == [{0: 2}]
    assert found(table) == {1: 1}


def test_a_lost_index_is_named_with_the_remedy(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, rows(range(5)))
    (lost,) = index_files(table)
    lost.unlink()
    again = Catalog(str(tmp_path)).table("db.t")
    with pytest.raises(CorruptDataError, match="freshet repair hash-index") as error:
        write(again, rows([9]))
    assert error.value.path == str(lost)
    assert found(again) == dict.fromkeys(range(5), 1)
    (damage,) = again.check().damage
    assert (damage.invariant, damage.where) == ("recorded_files_are_there", str(lost))
    assert "rows are read without it" in damage.remedy
    assert "freshet repair hash-index WAREHOUSE TABLE" in damage.remedy
    assert "backup" not in damage.remedy
    again.repair_hash_indexes()
    assert not again.check().damage


def test_a_check_says_who_needs_a_lost_index_and_how_to_build_it_again(tmp_path: Path) -> None:
    """Scans do not read it, and no backup is needed."""
    table = create(tmp_path)
    write(table, rows(range(5)))
    write(table, rows(range(6)))
    for lost in index_files(table):
        lost.unlink()
    latest, earlier = (each.remedy for each in table.check(all_snapshots=True).damage)
    assert "snapshot expires" in earlier
    assert "rows are read without it" in latest
    assert "freshet repair hash-index" in latest
    table.repair_hash_indexes()
    assert not table.check().damage
    assert table.scan(snapshot_id=1).count() == 5


def test_an_index_that_was_cut_short_is_named(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, rows(range(5)))
    (cut,) = index_files(table)
    cut.write_bytes(cut.read_bytes()[:-4])
    with pytest.raises(CorruptDataError, match="has 16 bytes, its manifest entry says 20"):
        write(Catalog(str(tmp_path)).table("db.t"), rows([9]))
    (damage,) = table.check().damage
    assert "16 bytes where 20 are recorded" in damage.what
    assert "freshet repair hash-index" in damage.remedy


def test_a_bucket_without_an_index_is_refused(tmp_path: Path) -> None:
    """A program that writes rows and no index would have its keys assigned once more."""
    table = create(tmp_path)
    writer = TaskWriter(table.store, base_snapshot=None)
    writer.write_bucket(EMPTY_ROW, 3, rows(range(3)))
    Committer(table.store, "other").commit(0, writer.prepare_commit(0))
    writer.close()
    with pytest.raises(CorruptDataError, match=r"has rows and no hash index.*bucket-3"):
        write(table, rows([1]))


def test_writers_that_take_turns_read_the_end_of_each_others_index(tmp_path: Path) -> None:
    first_table, second_table = create(tmp_path), Catalog(str(tmp_path)).table("db.t")
    with first_table.writer("a") as first, second_table.writer("b") as second:
        for turn in range(6):
            writer = second if turn % 2 else first
            writer.write(rows(range(turn * 10, turn * 10 + 20), turn))
            writer.commit()
    assert counts(first_table) == [{0: 70}]
    assert found(first_table) == {key: min(5, key // 10) for key in range(70)}


def test_a_key_that_was_deleted_keeps_its_bucket(tmp_path: Path) -> None:
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "2"})
    write(table, rows(range(4)))
    write(table, rows([0]).append_column("_ROW_KIND", pa.array(["-D"])))
    table.compact(full=True)
    write(table, rows([0], 9))
    assert found(table) == {0: 9, 1: 1, 2: 1, 3: 1}
    assert counts(table) == [{0: 2, 1: 2}]


def test_lost_indexes_are_built_again_from_the_rows(tmp_path: Path) -> None:
    table = create(tmp_path, True, **{"dynamic-bucket.target-row-num": "4"})
    write(table, rows(range(10)), rows(range(3), p=1))
    write(table, rows([0]).append_column("_ROW_KIND", pa.array(["-D"])))
    before, (first, second, *_) = counts(table), index_files(table)
    first.unlink()
    second.write_bytes(b"abc")
    table = Catalog(str(tmp_path)).table("db.t")
    repair = table.repair_hash_indexes()
    assert {each.why for each in repair.repaired} == {
        f"{first.name} is missing or damaged",
        f"{second.name} is missing or damaged",
    }
    assert counts(table) == before
    write(table, rows(range(12), 2))
    assert table.scan(filter="p = 0").to_arrow().num_rows == 12
    assert table.repair_hash_indexes().repaired == ()
    assert not table.check().damage


def test_keys_that_an_index_lacks_are_added_to_it_and_doubles_are_reported(tmp_path: Path) -> None:
    """As two writers leave them that do not look at each other's indexes."""
    table = create(tmp_path)
    write(table, rows(range(5)))
    task = TaskWriter(table.store, base_snapshot=table.store.snapshots.latest())
    task.write_bucket(EMPTY_ROW, 0, rows([7]))
    task.write_bucket(EMPTY_ROW, 1, rows([3, 8]))
    Committer(table.store, "other").commit(0, task.prepare_commit(0))
    task.close()
    repair = table.repair_hash_indexes()
    assert [(each.bucket, each.why, each.key_count) for each in repair.repaired] == [
        (0, "it lacks 1 of the keys", 6),
        (1, "it has no index file", 2),
    ]
    assert repair.keys_in_two_buckets == (("", 1),)
    assert repair.bucket_count == 2
    with pytest.raises(InvalidRequestError, match="has no dynamic buckets"):
        Catalog(str(tmp_path)).create_table(
            "db.fixed", schema={"k": "INT"}, primary_keys=["k"], options={"bucket": "1"}
        ).repair_hash_indexes()


def test_keys_whose_hashes_collide_share_an_entry_and_a_bucket(tmp_path: Path) -> None:
    keys = np.random.default_rng(3).integers(-(2**63), 2**63, 400_000)
    hashes = row_hashes([pa.array(keys)], [parse_data_type("BIGINT NOT NULL")])
    order = np.argsort(hashes, kind="stable")
    pairs = np.flatnonzero(np.diff(hashes[order]) == 0)
    assert len(pairs), "two of so many numbers have the same hash"
    one, other = (int(keys[order[pairs[0] + step]]) for step in range(2))
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "BIGINT NOT NULL", "v": "BIGINT"},
        primary_keys=["k"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "1"},
    )
    write(table, pa.table({"k": [one, 7], "v": [1, 2]}))
    write(table, pa.table({"k": [other], "v": [3]}))
    assert found(table) == {one: 1, 7: 2, other: 3}
    assert counts(table) == [{0: 1, 1: 1}]


def test_a_writer_goes_on_after_the_table_was_altered(tmp_path: Path) -> None:
    table = create(tmp_path, **{"dynamic-bucket.target-row-num": "10"})
    with table.writer("w") as writer:
        writer.write(rows(range(8)))
        writer.commit()
        Catalog(str(tmp_path)).table("db.t").alter(AddColumn("note", "STRING"))
        writer.write(rows(range(5, 15), 2))
        writer.commit()
        writer.write(rows(range(20), 3).append_column("note", pa.array(["x"] * 20)))
        writer.commit()
    assert found(Catalog(str(tmp_path)).table("db.t")) == dict.fromkeys(range(20), 3)
    assert counts(table) == [{0: 10, 1: 10}]


def test_a_lost_commit_is_repaired_into_the_buckets_of_today(tmp_path: Path) -> None:
    """Another program has replaced its snapshot in an object store, and has added keys."""
    table = Catalog(tmp_path, options=CHOSEN).create_table(
        "db.t",
        schema={"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "v": "BIGINT"},
        primary_keys=["p", "k"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "4"},
    )
    write(table, rows(range(3)))
    write(table, rows(range(2, 9), 2))
    copy_over(table.store, 2)
    [lost] = table.lost_commits()
    assert found(table) == dict.fromkeys(range(3), 1)
    table.repair_lost_commit(lost.manifest_list)
    assert found(table) == dict.fromkeys(range(2), 1) | dict.fromkeys(range(2, 9), 2)
    assert counts(table) == [{0: 4, 1: 4, 2: 1}]
    assert table.repair_lost_commit(lost.manifest_list).already_committed
    assert not table.check().damage
