"""Reading tables with deletion vectors: marked rows are not there, whatever is pruned, projected or merged."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from freshet.storage.commit.committer import Committer
from freshet.storage.describe import describe_table, table_facts
from freshet.storage.exceptions import CorruptDataError, MissingFileError
from freshet.storage.filters.column import col
from freshet.storage.io.env import local_env
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.manifest import IndexFileMeta
from tests.kit.hypothesis_profile import examples
from tests.storage.scan.scan_tables import PlacedTable, writable

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
VECTORS = {"deletion-vectors.enabled": "true"}


def placed(folder: Path, options: Mapping[str, str] | None = None, *, keyed: bool = True) -> PlacedTable:
    return PlacedTable(
        folder, SCHEMA, keys=["k"] if keyed else [], options=VECTORS if options is None else options, env=local_env()
    )


def rows(keys: Iterable[int], v: int = 0) -> list[dict[str, object]]:
    return [{"k": key, "v": v, "s": f"{v}-{key}"} for key in keys]


def mark(table: PlacedTable, *marked: Iterable[int], wide: bool = False) -> IndexFileMeta:
    """Commits a vector for each file, in the order of the files' sequence numbers."""
    store = table.store
    snapshot = store.snapshots.latest()
    assert snapshot is not None
    files = sorted((e.file for e in store.live.at(snapshot).entries()), key=lambda file: file.min_sequence_number)
    vectors = {file.file_name: BitMap(each) for file, each in zip(files, marked, strict=False) if each}
    index_file = store.vectors.write(vectors, is_64_bit=wide)
    known = store.manifests.marking_files(snapshot.index_manifest).get((EMPTY_ROW, 0), ())
    message = CommitMessage(
        EMPTY_ROW,
        0,
        store.options.bucket,
        compact_new_index_files=(index_file,),
        compact_deleted_index_files=known,
    )
    table.identifier += 1
    Committer(writable(store), "marks").commit(table.identifier, [message])
    return index_file


@pytest.mark.parametrize("wide", [False, True])
def test_marked_rows_are_not_there_and_nothing_is_merged(tmp_path: Path, wide: bool) -> None:
    table = placed(tmp_path)
    table.place(rows(range(10)), level=5)
    table.place(rows([2, 3, 12], 1), level=4)
    mark(table, [2, 3, 7], [1], wide=wide)
    (split,) = table.scan().plan()
    assert split.raw_convertible
    assert split.marked_row_count == 4
    expected = [*rows([0, 1, 4, 5, 6, 8, 9]), *rows([2, 12], 1)]
    assert sorted(table.rows(), key=lambda row: row["k"]) == sorted(expected, key=lambda row: row["k"])
    assert table.scan().count() == 9
    assert table.rows(filter=col("v") == 1, columns=["k"]) == [{"k": 2}, {"k": 12}]
    assert table.scan(filter=col("v") == 1).count() == 2
    assert list(table.scan(limit=3).to_arrow()["k"].to_pylist()) == [0, 1, 4]
    assert pickle.loads(pickle.dumps(table.scan())).to_arrow().num_rows == 9


def test_level_0_shows_once_it_was_compacted(tmp_path: Path) -> None:
    table = placed(tmp_path)
    table.place(rows(range(4)), level=5)
    table.place(rows([1, 9], 1))
    assert [row["s"] for row in table.rows()] == ["0-0", "0-1", "0-2", "0-3"]
    assert table.scan().count() == 4
    found = find_stored_rows(table.store, table.store.snapshots.latest(), pa.table({"k": [1, 9]}))
    assert found.by_key()["s"].to_pylist() == ["0-1", None]


def test_merge_on_read_sees_level_0(tmp_path: Path) -> None:
    table = placed(tmp_path, VECTORS | {"deletion-vectors.merge-on-read": "true"})
    table.place(rows(range(4)), level=5)
    table.place(rows([1], 1), level=4)
    mark(table, [1, 3])
    table.place(rows([2, 9], 2))
    assert [row["s"] for row in table.rows()] == ["0-0", "1-1", "2-2", "2-9"]
    assert table.scan().count() == 4
    assert not any(split.raw_convertible for split in table.scan().plan())


def test_keys_of_marked_rows_are_not_found(tmp_path: Path) -> None:
    table = placed(tmp_path)
    table.place(rows(range(6)), level=5)
    table.place(rows([4], 1), level=4)
    mark(table, [1, 4])
    store = table.store
    found = find_stored_rows(store, store.snapshots.latest(), pa.table({"k": [0, 1, 4, 7]}))
    assert found.by_key()["s"].to_pylist() == ["0-0", None, "1-4", None]


def test_append_tables_with_several_index_files(tmp_path: Path) -> None:
    table = placed(tmp_path, keyed=False)
    table.place(rows(range(5)))
    table.place(rows(range(5, 8), 1))
    first = mark(table, [0, 4])
    store = table.store
    snapshot = store.snapshots.latest()
    second_file = max(store.live.at(snapshot).entries(), key=lambda e: e.file.min_sequence_number).file
    second = store.vectors.write({second_file.file_name: BitMap([1])}, is_64_bit=True)
    Committer(writable(store), "marks").commit(9, [CommitMessage(EMPTY_ROW, 0, -1, compact_new_index_files=(second,))])
    assert [row["k"] for row in table.rows()] == [1, 2, 3, 5, 7]
    assert table.scan().count() == 5
    (split,) = table.scan().plan()
    assert set(split.index_files) == {first, second}


def test_older_snapshots_have_the_vectors_of_their_time(tmp_path: Path) -> None:
    table = placed(tmp_path)
    ids = [table.place(rows(range(3)), level=5).id]
    for marked in ([0], [0, 2]):
        mark(table, marked)
        latest = table.store.snapshots.latest()
        assert latest is not None
        ids.append(latest.id)
    assert [len(table.rows(snapshot_id=snapshot_id)) for snapshot_id in ids] == [3, 2, 1]


def test_pruned_row_groups_keep_positions_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.files.parquet.writer.ROW_GROUP_BYTES", 128 * 1024)
    table = placed(tmp_path)
    table.place(pa.table({"k": range(30_000), "v": range(30_000), "s": ["x"] * 30_000}), level=5)
    (path,) = Path(table.location).glob("bucket-0/*.parquet")
    assert pq.ParquetFile(path).metadata.num_row_groups > 2
    marked = set(range(0, 30_000, 7))
    mark(table, marked)
    for low, high in ((25_000, 25_100), (0, 50), (29_990, 30_000)):
        found = table.scan(filter=(col("v") >= low) & (col("v") < high), columns=["k"]).to_arrow()["k"].to_pylist()
        assert found == [key for key in range(low, high) if key not in marked]
    single = table.scan(columns=["k"], threads=1).to_arrow()["k"].to_pylist()
    assert single == [key for key in range(30_000) if key not in marked]


def test_files_whose_rows_are_all_marked(tmp_path: Path) -> None:
    table = placed(tmp_path)
    table.place(rows(range(3)), level=5)
    mark(table, range(3))
    assert table.rows() == []
    assert table.scan().count() == 0
    assert table.scan(filter=col("v") == 0).count() == 0


@settings(max_examples=examples(15))
@given(marked=st.lists(st.sets(st.integers(0, 29)), min_size=2, max_size=2), wide=st.booleans())
def test_any_rows_may_be_marked(tmp_path_factory: pytest.TempPathFactory, marked: list[set[int]], wide: bool) -> None:
    table = placed(tmp_path_factory.mktemp("marked"))
    table.place(rows(range(30)), level=5)
    table.place(rows(range(30, 60), 1), level=4)
    mark(table, *marked, wide=wide)
    expected = [key for key in range(60) if key % 30 not in marked[key // 30]]
    assert sorted(row["k"] for row in table.rows()) == expected
    assert table.scan().count() == len(expected)


def test_marked_rows_show_in_descriptions(tmp_path: Path) -> None:
    table = placed(tmp_path)
    table.place(rows(range(5)), level=5)
    table.place(rows([1], 1), level=4)
    mark(table, [1, 4])
    store = table.store
    assert "2 marked" in describe_table(store, "db.t")
    (bucket,) = table_facts(store, "db.t")["buckets"]
    assert (bucket["rows"], bucket["marked_rows"]) == (6, 2)


# ------------------------------------------------------------------------------------------------------------ damage


def test_a_missing_index_file(tmp_path: Path) -> None:
    table = placed(tmp_path)
    table.place(rows(range(3)), level=5)
    index_file = mark(table, [1])
    path = Path(table.store.paths.index_file(index_file.file_name))
    path.unlink()
    with pytest.raises(MissingFileError, match="deleted rows would come back") as caught:
        table.rows()
    assert caught.value.path == str(path)
    assert len(table.rows(snapshot_id=1)) == 3


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_index_file(tmp_path: Path, cut: bool) -> None:
    table = placed(tmp_path)
    table.place(rows(range(3)), level=5)
    index_file = mark(table, [1])
    path = Path(table.store.paths.index_file(index_file.file_name))
    data = path.read_bytes()
    path.write_bytes(data[:-1] if cut else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptDataError, match="cut short" if cut else "checksum does not match") as caught:
        table.rows()
    assert caught.value.path == str(path)


def test_a_vector_of_another_file(tmp_path: Path) -> None:
    table = placed(tmp_path)
    table.place(rows(range(3)), level=5)
    mark(table, [1, 3])
    with pytest.raises(CorruptDataError, match="marks row 3 of a file of 3 rows"):
        table.rows()


def test_a_vector_of_a_file_that_is_gone_marks_nothing(tmp_path: Path) -> None:
    """A commit refuses such an entry; where another program wrote it, the files that are there are read."""
    table = placed(tmp_path)
    table.place(rows(range(3)), level=5)
    index_file = mark(table, [1])
    (split,) = table.scan().plan()
    places = index_file.deletion_vectors or ()
    gone = replace(index_file, deletion_vectors=tuple(replace(each, data_file_name="data-gone") for each in places))
    assert split.marked_row_count == 1
    assert replace(split, index_files=(gone,)).marked_row_count == 0
