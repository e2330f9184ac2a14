"""Small changelog files of a commit packed into one: names, bytes, reading, expiry, orphans, conflicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.commit_message import encode_commit_messages
from freshet.storage.paths import PackedRange, TablePaths, file_format_of, packed_name, packed_range

PACKED = {"precommit-compact": "true", "bucket": "4"}


def a_table(folder: Path, **options: str) -> Table:
    return Catalog(str(folder)).create_table(
        "db.t",
        schema={"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"},
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={**PACKED, **options},
    )


def write(table: Table, number: int) -> None:
    with table.writer("w") as writer:
        keys = list(range(40))
        rows = {"p": ["a" if key % 2 else "b" for key in keys], "k": pa.array(keys, pa.int32())}
        writer.write(pa.table({**rows, "v": [f"{number}"] * 40}))
        writer.commit()


def changes(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.changelog().to_arrow().to_pylist())


def on_disk(table: Table, pattern: str) -> list[str]:
    return sorted(path.relative_to(table.location).as_posix() for path in Path(table.location).rglob(pattern))


@pytest.mark.parametrize("producer", ["input", "lookup"])
def test_one_file_a_partition_and_snapshot(tmp_path: Path, producer: str) -> None:
    packed = a_table(tmp_path / "packed", **{"changelog-producer": producer})
    plain = a_table(tmp_path / "plain", **{"changelog-producer": producer, "precommit-compact": "false"})
    for table in (packed, plain):
        for number in range(2):
            write(table, number)
    assert changes(packed) == changes(plain)
    assert len(on_disk(packed, "compacted-changelog-*")) == 4
    assert on_disk(packed, "changelog-*.parquet") == []
    assert len(on_disk(plain, "changelog-*.parquet")) == 16
    assert packed.remove_orphan_files(older_than_ms=-1_000_000).files == ()
    assert packed.changelog(filter="k = 3").to_arrow().num_rows == plain.changelog(filter="k = 3").to_arrow().num_rows


def test_packed_files_go_with_their_snapshot(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"changelog-producer": "lookup"})
    for number in range(3):
        write(table, number)
    latest = table.snapshots()[-1].id
    before = changes(table)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert len(on_disk(table, "compacted-changelog-*")) == 2
    assert changes(table) == [change for change in before if change[-1] == latest]
    assert table.remove_orphan_files(older_than_ms=-1_000_000).files == ()


def test_the_option_has_an_older_name_and_few_files_are_left_alone(tmp_path: Path) -> None:
    options = {"changelog-producer": "input", "precommit-compact": "false", "changelog.precommit-compact": "true"}
    table = Catalog(str(tmp_path)).create_table(
        "db.o", schema={"k": "INT"}, primary_keys=["k"],
        options={"bucket": "1", "changelog-producer": "input", "changelog.precommit-compact": "true"},
    )  # fmt: skip
    assert table.options.precommit_compact
    assert not a_table(tmp_path / "both", **options).options.precommit_compact, "the newer name counts"
    with table.writer("w") as writer:
        writer.write(pa.table({"k": pa.array([1], pa.int32())}))
        writer.commit()
    assert len(on_disk(table, "changelog-*.parquet")) == 1
    assert any("precommit-compact=true" in warning for warning in table.engine.warnings())


def test_large_files_stay_by_themselves(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"changelog-producer": "input", "changelog.precommit-compact.buffer-size": "1 b"})
    write(table, 0)
    assert on_disk(table, "compacted-changelog-*") == []
    assert len(on_disk(table, "changelog-*.parquet")) == 8


def test_a_commit_that_was_made_already_leaves_nothing(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"changelog-producer": "input"})
    committer = table.engine.committer("stream")
    for _ in range(2):
        writer = table.engine.task_writer(base_snapshot_id=None)
        writer.write(pa.table({"p": ["a"] * 20, "k": pa.array(range(20), pa.int32()), "v": ["x"] * 20}))
        messages = writer.prepare_commit(0)
        writer.close()
        if committer.commit(0, messages).already_committed:
            table.engine.discard(messages)
    assert len(on_disk(table, "compacted-changelog-*")) == 1
    assert on_disk(table, "changelog-*.parquet") == []
    assert table.remove_orphan_files(older_than_ms=-1_000_000).files == ()
    assert encode_commit_messages(messages)


def test_a_packed_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"changelog-producer": "input"})
    write(table, 0)
    for name in on_disk(table, "compacted-changelog-*"):
        path = Path(table.location, name)
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptDataError, match="compacted-changelog"):
        changes(table)


def test_names() -> None:
    real, part = packed_name("compacted-changelog-u", 3, 70, None), packed_name("compacted-changelog-u", 3, 70, (70, 9))
    assert (real, part) == ("compacted-changelog-u$3-70.cc-parquet", "compacted-changelog-u$3-70-70-9.cc-parquet")
    assert packed_range(real) == PackedRange(3, real, 0, 70)
    assert packed_range(part) == PackedRange(3, real, 70, 9)
    assert file_format_of(part) == "parquet"
    paths = TablePaths("/w/t")
    assert paths.data_file("p=1", 5, part) == f"/w/t/p=1/bucket-3/{real}"
    assert paths.data_file("p=1", 5, part, f"file:/x/p=1/bucket-5/{part}") == f"/x/p=1/bucket-3/{real}"
    for other in ("data-u-0.parquet", "compacted-changelog-u.parquet", "compacted-changelog-u$3-70-5.cc-parquet"):
        assert packed_range(other) is None
