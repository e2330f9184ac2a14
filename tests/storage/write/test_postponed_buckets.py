"""Tables whose rows may wait for their bucket (`bucket=-2`): what commits and compactions make of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet import Catalog, ConflictError, InvalidRequestError, Table
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.write import postponed_router

COLUMNS = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "n": "BIGINT"}
WAITING = {"postpone.batch-write-fixed-bucket": "false"}


def a_table(folder: Path | str, *, env: Any = None, **options: str) -> Table:
    return Catalog(str(folder), env=env).create_table(
        "db.t",
        schema=COLUMNS,
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={"bucket": "-2", "postpone.default-bucket-num": "3", **options},
    )


def rows(partition: str, number: int, *keys: int, kind: str = "+I") -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "p": [partition] * count,
            "k": pa.array(keys, pa.int32()),
            "n": pa.array([number] * count, pa.int64()),
            "_ROW_KIND": [kind] * count,
        }
    )


def commit(table: Table, *given: pa.Table, user: str = "w") -> None:
    with table.writer(user) as writer:
        for each in given:
            writer.write(each)
        writer.commit()


def staged(table: Table, *given: pa.Table, user: str = "w") -> None:
    commit(table.with_options(WAITING), *given, user=user)


def held(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def buckets(table: Table) -> dict[str, set[tuple[int, int]]]:
    """(bucket, total) of the files of each partition."""
    found: dict[str, set[tuple[int, int]]] = {}
    for entry in table.files():
        partition = decode_row(entry.partition, table.store.partition_types)[0]
        found.setdefault(str(partition), set()).add((entry.bucket, entry.total_buckets))
    return found


def totals(table: Table) -> dict[str, set[int]]:
    return {partition: {total for _, total in found} for partition, found in buckets(table).items()}


def test_rows_wait_until_they_are_compacted(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    staged(table, rows("a", 1, *range(9)))
    staged(table, rows("a", 2, 0, 1), rows("a", 0, 2, kind="-D"), rows("b", 1, 5))
    assert held(table) == []
    assert buckets(table) == {"a": {(-2, -2)}, "b": {(-2, -2)}}
    names = [entry.file.file_name for entry in table.files()]
    assert all(name.startswith("data--u-w-s-0-w-") and name.endswith(".avro") for name in names)
    assert all(Path(table.location, "p=a", "bucket-postpone", name).exists() for name in names[:1])
    for entry in table.files():
        assert (entry.file.level, entry.file.min_sequence_number, entry.file.max_sequence_number) == (0, -1, -1)
        assert entry.file.value_stats_cols == ()
    result = table.compact()
    assert [snapshot.commit_kind for snapshot in result.snapshots] == ["COMPACT"]
    assert held(table) == [("a", key, 2 if key < 2 else 1) for key in range(9) if key != 2] + [("b", 5, 1)]
    assert totals(table) == {"a": {3}, "b": {3}}
    assert not table.compact().snapshots
    assert not table.check(all_snapshots=True).damage


def test_plain_commits_go_to_buckets(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"postpone.target-row-num-per-bucket": "4"})
    commit(table, rows("a", 1, *range(5)), rows("a", 1, *range(5, 9)), rows("b", 1, 0))
    assert totals(table) == {"a": {3}, "b": {1}}, "nine rows, four to a bucket"
    assert held(table) == [("a", key, 1) for key in range(9)] + [("b", 0, 1)]
    assert {entry.file.level for entry in table.files()} == {0}, "writers compact nothing"
    commit(table, rows("a", 2, *range(100)), rows("c", 1, 7))
    assert totals(table) == {"a": {3}, "b": {1}, "c": {1}}, "a number once chosen stays"
    staged(table, rows("d", 1, *range(6)))
    commit(table, rows("d", 2, *range(3)))
    assert totals(table)["d"] == {-2, 3}, "rows that wait are counted too"
    staged(table, rows("e", 1, *range(9)))
    table.compact()
    assert totals(table) == {"a": {3}, "b": {1}, "c": {1}, "d": {3}, "e": {3}}
    assert sorted(row for row in held(table) if row[0] == "d") == [("d", key, 1) for key in range(6)]


def test_a_size_says_how_many_buckets_there_are(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"postpone.target-size-per-bucket": "1 kb"})
    commit(table, rows("a", 1, *range(1000)))
    ((total,),) = (found for found in totals(table).values())
    assert 10 < total < 40
    capped = a_table(
        tmp_path / "other",
        **{
            "postpone.target-size-per-bucket": "1 kb",
            "postpone.batch-write-fixed-bucket.max-parallelism": "2",
        },
    )
    commit(capped, rows("a", 1, *range(1000)))
    assert totals(capped) == {"a": {2}}


def test_many_rows_of_a_new_partition_go_to_scratch_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postponed_router, "KEPT_BYTES_MAX", 100)
    table = a_table(tmp_path, **{"postpone.target-row-num-per-bucket": "100"})
    parts = [rows("a", number, *range(number, 300, 7)) for number in range(7)]
    commit(table, *parts, rows("a", 9, 5), rows("a", 0, 6, kind="-D"))
    assert totals(table) == {"a": {4}}
    want = {key: number for number in range(7) for key in range(number, 300, 7)} | {5: 9}
    del want[6]
    assert held(table) == [("a", key, number) for key, number in sorted(want.items())]
    with table.writer("x") as writer:
        writer.write(rows("b", 1, *range(50)))
        writer.abort()
        writer.write(rows("b", 2, 1))
        writer.commit()
    assert [row for row in held(table) if row[0] == "b"] == [("b", 1, 2)]


def test_two_writers_cannot_give_a_partition_two_numbers(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"postpone.target-row-num-per-bucket": "4"})
    with table.writer("slow") as slow:
        slow.write(rows("a", 1, *range(9)))
        pending = slow._prepare(None)
        assert pending is not None
        commit(table, rows("a", 2, 1), user="fast")
        with pytest.raises(ConflictError, match="with 1 buckets, .* routed to 3: another writer gave it that number"):
            slow.commit()
        assert held(table) == [("a", 1, 2)]
        slow.abort()
        slow.write(rows("a", 1, *range(9)))
        slow.commit()
    assert held(table) == [("a", key, 1) for key in range(9)]
    assert totals(table) == {"a": {1}}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["staged", "commit", "compact", "as needed"]),
            st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.booleans()), max_size=6),
        ),
        max_size=12,
    )
)
def test_an_oracle(steps: list[tuple[str, list[tuple[str, int, bool]]]]) -> None:
    """What waits lies over everything else, in its order; a commit into buckets does not overtake it."""
    table = a_table("/w", env=Env(MemoryFileIO()))
    shown: dict[tuple[str, int], int | None] = {}
    waiting: list[tuple[tuple[str, int], int | None]] = []
    for number, (what, changes) in enumerate(steps):
        given = [rows(p, number, k, kind="-D" if gone else "+I") for p, k, gone in changes]
        after = [((p, k), None if gone else number) for p, k, gone in changes]
        if what in ("compact", "as needed"):
            table.compact(full=what == "compact")
            shown.update(waiting)
            waiting.clear()
        elif given:
            (staged if what == "staged" else commit)(table, *given)
            if what == "staged":
                waiting += after
            else:
                shown.update(after)
        want = sorted((*key, value) for key, value in shown.items() if value is not None)
        assert held(table) == want
    assert not table.check(all_snapshots=True).damage


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_comes_with_the_compaction(tmp_path: Path, producer: str) -> None:
    table = a_table(tmp_path, **{"changelog-producer": producer})
    staged(table, rows("a", 1, 1, 2))
    assert table.changelog().to_arrow().num_rows == 0
    table.compact()
    staged(table, rows("a", 2, 2, 3))
    table.compact()
    changes = [(row["k"], row["n"], row["_ROW_KIND"]) for row in table.changelog().to_arrow().to_pylist()]
    if producer == "input":
        assert sorted(changes) == [(1, 1, "+I"), (2, 1, "+I"), (2, 2, "+I"), (3, 2, "+I")]
    else:
        assert sorted(changes) == [(1, 1, "+I"), (2, 1, "+I"), (2, 1, "-U"), (2, 2, "+U"), (3, 2, "+I")]


def test_what_has_no_meaning_is_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    with table.writer("w") as writer, pytest.raises(InvalidRequestError, match="Table.compact"):
        writer.compact()
    with pytest.raises(InvalidRequestError, match="from bucket=-2 to 4: rows wait, .* copy the rows"):
        table.rescale(4)
    for options, match in (
        ({"sequence.snapshot-ordering": "true", "write-only": "true"}, "bucket=-2 contradict"),
        ({"log.system": "kafka", "kafka.bootstrap.servers": "x", "kafka.topic": "t"}, "number of buckets"),
        ({"postpone.default-bucket-num": "0"}, "postpone.default-bucket-num"),
    ):
        with pytest.raises(InvalidRequestError, match=match):
            a_table(tmp_path / "other", **options)
    with pytest.raises(InvalidRequestError, match="-1 for none"):
        Catalog(str(tmp_path)).create_table("db.a", schema=COLUMNS, options={"bucket": "-2"})


def test_files_of_a_writer_that_died_are_orphans(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    staged(table, rows("a", 1, 1))
    writer = table.with_options(WAITING).writer("w")
    writer.write(rows("a", 2, 1))
    writer._prepare(None)  # it dies before the commit
    folder = Path(table.location, "p=a", "bucket-postpone")
    assert len(list(folder.iterdir())) == 2
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    assert len(table.remove_orphan_files(older_than_ms=0).files) == 1
    assert [path.name for path in folder.iterdir()] == [entry.file.file_name for entry in table.files()]
    table.compact()
    assert held(table) == [("a", 1, 1)]
