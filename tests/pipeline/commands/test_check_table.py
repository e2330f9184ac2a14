"""freshet check-table: what it says of a table that is damaged, and of one that was mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.commands.kit import Freshet
from tests.storage.maintenance.test_repair import damaged


def test_a_damaged_table_is_mended_by_the_remedy(
    freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = damaged(tmp_path, monkeypatch)
    place = (tmp_path, "db.t")
    called = freshet("check-table", *place)
    assert called.code == 65
    assert f"{table.location}/dt=a/bucket-0: snapshot 4: files data-" in called.out
    remedy = f"freshet compact {tmp_path} db.t --repair"
    assert remedy in called.out
    assert called.out.endswith("db.t: snapshot 4, 4 files in 2 buckets; 2 findings\n")
    found = freshet("check-table", *place, "--json")
    assert found.code == 65
    assert (found.facts["snapshot"], found.facts["files"], found.facts["buckets"]) == (4, 4, 2)
    assert {each["invariant"] for each in found.facts["damage"]} == {"levels_are_runs"}
    assert all(each["where"].startswith(table.location) and remedy in each["remedy"] for each in found.facts["damage"])
    assert freshet("compact", *place, "--repair").code == 0
    mended = freshet("check-table", *place)
    assert (mended.code, mended.out) == (0, "db.t: snapshot 6, 2 files in 2 buckets; no damage found\n")


def test_a_table_of_which_a_file_was_lost(freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = damaged(tmp_path, monkeypatch)
    table.repair()
    lost = next(Path(table.location).glob(f"dt=a/bucket-0/{table.files()[0].file.file_name}"))
    lost.unlink()
    called = freshet("check-table", tmp_path, "db.t")
    assert called.code == 65
    assert f"{lost}: snapshot" in called.out and "restore it from a backup" in called.out


def test_a_table_whose_only_schema_was_lost(freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Path(damaged(tmp_path, monkeypatch).location) / "schema" / "schema-0"
    schema.unlink()
    called = freshet("check-table", tmp_path, "db.t")
    assert called.code == 65
    assert "restore schema-0" in called.err and str(schema) in called.err


def test_files_that_earlier_snapshots_name(freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = damaged(tmp_path, monkeypatch)
    first = {entry.file.file_name for entry in table.files()}
    table.repair()
    gone = sorted(first - {entry.file.file_name for entry in table.files()})[0]
    (lost,) = Path(table.location).rglob(gone)
    lost.unlink()
    assert freshet("check-table", tmp_path, "db.t").code == 0
    called = freshet("check-table", tmp_path, "db.t", "--all-snapshots")
    assert called.code == 65
    assert f"{lost}: snapshot" in called.out and " before it; " in called.out
    found = freshet("check-table", tmp_path, "db.t", "--all-snapshots", "--json")
    assert found.facts["snapshots"] == found.facts["snapshot"] > 1
