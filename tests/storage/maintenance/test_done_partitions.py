"""Partitions that are marked as done: which file that makes, and what is refused."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError


def made(folder: Path, options: dict[str, Any] | None = None, day: str = "STRING") -> Table:
    return Catalog(folder).create_table(
        "db.t",
        schema={"id": "BIGINT", "dt": day, "city": "STRING"},
        partition_keys=["dt", "city"],
        options=options or {},
    )


def marks(table: Table) -> dict[str, dict[str, int]]:
    root = Path(table.location)
    return {str(path.parent.relative_to(root)): json.loads(path.read_text()) for path in root.rglob("_SUCCESS")}


def test_a_mark_is_a_file_in_the_folder_of_the_partition(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.append([{"id": 1, "dt": "2026-11-22", "city": "Ulm"}])
    before = table.snapshots()
    paths = table.mark_partition_done({"city": "Ulm", "dt": "2026-11-22"}, {"dt": "x=y", "city": None})
    folders = ["dt=2026-11-22/city=Ulm", "dt=x%3Dy/city=__DEFAULT_PARTITION__"]
    assert list(paths) == [f"{table.location}/{folder}/_SUCCESS" for folder in folders]
    assert sorted(marks(table)) == folders
    first = marks(table)[folders[0]]
    assert first["creationTime"] == first["modificationTime"] > 0
    assert table.snapshots() == before
    table.mark_partition_done({"city": "Ulm", "dt": "2026-11-22"})
    again = marks(table)[folders[0]]
    assert again["creationTime"] == first["creationTime"] <= again["modificationTime"]


@pytest.mark.parametrize("legacy", [True, False])
def test_a_day_has_the_folder_that_its_rows_have(tmp_path: Path, legacy: bool) -> None:
    table = made(tmp_path, {"partition.legacy-name": str(legacy).lower()}, day="DATE")
    table.append([{"id": 1, "dt": date(2026, 11, 22), "city": "Ulm"}])
    day = date(2026, 11, 22)
    table.mark_partition_done({"dt": day, "city": "Ulm"})
    table.mark_partition_done({"dt": "2026-11-22", "city": "Ulm"})
    (folder,) = marks(table)
    assert any((Path(table.location) / folder).glob("bucket-*"))


@pytest.mark.parametrize("blank", ["", "  ", None, "__DEFAULT_PARTITION__"])
def test_blank_texts_share_the_folder_of_null(tmp_path: Path, blank: str | None) -> None:
    table = made(tmp_path)
    table.append([{"id": 1, "dt": blank, "city": "Ulm"}])
    table.mark_partition_done({"dt": blank, "city": "Ulm"})
    (folder,) = marks(table)
    assert folder == "dt=__DEFAULT_PARTITION__/city=Ulm"
    assert any((Path(table.location) / folder).glob("bucket-*"))


def test_neither_orphans_nor_expiry_take_it(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.append([{"id": 1, "dt": "a", "city": "Ulm"}])
    table.mark_partition_done({"dt": "a", "city": "Ulm"})
    table.drop_partition({"dt": "a"})
    table.expire_snapshots(retain_max=1, older_than_ms=0)
    assert table.remove_orphan_files(older_than_ms=-60_000).files == ()
    assert len(marks(table)) == 1
    assert table.scan().to_arrow().num_rows == 0


def test_a_file_of_another_program_counts_as_new(tmp_path: Path) -> None:
    table = made(tmp_path)
    path = Path(table.location) / "dt=a/city=b/_SUCCESS"
    path.parent.mkdir(parents=True)
    path.write_text("")
    table.mark_partition_done({"dt": "a", "city": "b"})
    assert marks(table)["dt=a/city=b"]["creationTime"] > 0


def test_what_is_refused_marks_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    good = {"dt": "a", "city": "b"}
    for partitions, text in (
        ((), "name the partition"),
        (({},), "name the partition"),
        ((good, {"dt": "a"}), "give city a value too"),
        ((good, {**good, "x": "1"}), "no partition key 'x'"),
    ):
        with pytest.raises(InvalidRequestError, match=text):
            table.mark_partition_done(*partitions)
    for action in ("done-partition", "success-file,mark-event", "http-report", "custom"):
        with pytest.raises(UnsupportedFeatureError, match=action.split(",")[-1]):
            table.with_options({"partition.mark-done-action": action}).mark_partition_done(good)
    plain = Catalog(tmp_path).create_table("db.plain", schema={"id": "BIGINT"})
    with pytest.raises(InvalidRequestError, match="not partitioned"):
        plain.mark_partition_done({})
    assert marks(table) == {}
