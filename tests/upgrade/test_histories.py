"""Tables that an earlier head left behind, changed by hand: rolled back to snapshots and tags of that head, tagged,
branched, deletes and merges into its files; and a pipeline whose batches are taken back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, InvalidRequestError, Table
from freshet.storage.model.snapshot import CommitKind
from tests.kit.quick import some_now
from tests.upgrade.archive import HISTORIES_ARCHIVE, unpack
from tests.upgrade.either_engine import ENGINES
from tests.upgrade.file_pipelines import (
    BATCHES,
    LATER_BATCHES,
    PLACE,
    STOPPED_BY_HAND,
    add_input,
    batch_records,
    held_after_batches,
)
from tests.upgrade.fixed_place import fixed_place
from tests.upgrade.histories import HISTORIES
from tests.upgrade.make_tables import TAG
from tests.upgrade.shapes import COLUMNS, LATER_COLUMN, Commit, Row, Shape, in_order, rows_after

ROOT = Path(__file__).resolve().parents[2]


def rows(table: Table, **when: Any) -> list[Row]:
    return in_order({LATER_COLUMN: None, **row} for row in table.scan(**when).to_arrow().to_pylist())


@pytest.mark.always("upgrade archives")
@pytest.mark.parametrize("shape", some_now(HISTORIES, 4), ids=lambda shape: shape.name)
def test_verbs_of_today_on_a_history_of_then(tmp_path: Path, shape: Shape) -> None:
    unpack(HISTORIES_ARCHIVE, tmp_path, below="tables/")
    then = json.loads((tmp_path / "tables" / "manifest.json").read_text())[shape.name]
    written = [Commit(**commit) for commit in then["written"]]
    table = Catalog(str(tmp_path / "tables")).table(f"db.{shape.name}")
    newest = table.snapshots()[-1].id
    before_last = rows_after(shape, written[:-1])

    table.rollback(undo=(written[-1].user, written[-1].identifier))
    assert rows(table) == before_last
    table.rollback(TAG)
    assert rows(table) == then["rows of the tag"] == rows_after(shape, written[:1])
    table.rollback(newest)
    assert rows(table) == then["rows"]
    assert not table.check(all_snapshots=True).damage

    table.tags.create("now")
    table.tags.rename(TAG, "first")
    table.branches.create("trial", from_tag="first")
    held = rows(table)
    if shape.engine == "sums":
        with pytest.raises(InvalidRequestError, match="remove-record-on-delete"):
            table.delete("k < 4")
    else:
        table.delete("k < 4")
        held = in_order(row for row in table_rows_of_all(shape, written) if row["k"] >= 4)
        assert rows(table) == held
    if shape.primary_keys and shape.engine != "sums":
        held = _merged(table, shape, held)
        assert rows(table) == held
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    table.remove_orphan_files(older_than_ms=-60_000)
    assert rows(table) == held
    assert rows(table, tag="now") == then["rows"]
    branch = Catalog(str(tmp_path / "tables")).table(f"db.{shape.name}$branch_trial")
    assert rows(table, tag="first") == rows(branch) == then["rows of the tag"]
    for each in (table, branch):
        assert not each.check(all_snapshots=True).damage


def table_rows_of_all(shape: Shape, written: list[Commit]) -> list[Row]:
    """Deletes make rows visible that the last commit has left in level 0."""
    return rows_after(shape, written)


def _merged(table: Table, shape: Shape, held: list[Row]) -> list[Row]:
    source = [
        {**dict.fromkeys([*COLUMNS, LATER_COLUMN]), "k": key, "p": f"p{key % 2}", "a": 1000 + key} for key in (5, 6, 40)
    ]
    merge = table.merge(source, on=shape.primary_keys)
    merge.when_matched_update({"a": 7}).when_not_matched_insert_all().execute()
    keys = {row["k"]: row for row in held}
    found = {**keys, **{row["k"]: {**keys[row["k"]], "a": 7} if row["k"] in keys else row for row in source}}
    return in_order(found.values())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_pipeline_goes_on_without_batches_of_then_that_were_taken_back(tmp_path: Path, engine: str) -> None:
    """The archive was stopped before the commit of its last batch; the two before it are undone."""
    [pipeline] = STOPPED_BY_HAND
    unpack(HISTORIES_ARCHIVE, tmp_path, below="files/")
    rest = json.loads((tmp_path / "files" / "manifest.json").read_text())["rest"]
    batches = batch_records(range(BATCHES + LATER_BATCHES))
    with fixed_place(PLACE) as folder:
        shutil.copytree(tmp_path / "files", folder, dirs_exist_ok=True)
        table = Catalog(str(folder / "warehouse")).table(f"shop.{pipeline.name}")
        table.rollback(undo=(pipeline.name, 1))
        add_input(folder, range(BATCHES, BATCHES + LATER_BATCHES), rest)
        refused = _run(folder, "--on", engine)
        assert refused.returncode != 0
        assert "--accept-loss-of 1..1" in refused.stdout + refused.stderr
        done = _run(folder, "--on", engine, "--accept-loss-of", "1..1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert [
            each.commit_identifier
            for each in table.snapshots()
            if each.commit_user == pipeline.name and each.commit_kind is CommitKind.APPEND
        ] == [0, 1, 2, 3, 4]
        kept = [batch for number, batch in enumerate(batches) if number != 1]
        assert in_order(table.scan().to_arrow().to_pylist()) == held_after_batches(pipeline, kept)


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "freshet", "run", *map(str, sorted((folder / "pipelines").iterdir())), *options]
    environment = {**os.environ, "WORLD": str(folder)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
