"""A table that was restored from a backup or rolled back does not lose what the batches between read in silence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.missing_batches import refuse_missing_batches
from freshet.pipeline.query.driver.batch_report import TableReport
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.runner import Runner

PIPELINE = """\
name: p
sources:
  - files: {{path: "{folder}/in", format: json}}
    format: json
table:
  warehouse: "{folder}/warehouse"
  name: db.t
  columns: {{id: BIGINT}}
  primary_key: [id]
  options: {{bucket: 1}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
"""


@pytest.mark.parametrize(("last", "batch"), [(None, 0), (0, 1), (6, 7), (7, 7), (7, 3)])
def test_batches_that_follow_each_other(last: int | None, batch: int) -> None:
    refuse_missing_batches(last, batch, table="db.t", pipeline="p")


@pytest.mark.parametrize(("last", "batch"), [(None, 1), (4, 6), (3, 8)])
def test_accepted(last: int | None, batch: int) -> None:
    refuse_missing_batches(last, batch, table="db.t", pipeline="p", accepted=(0, 7))
    with pytest.raises(PipelineFailedError):
        refuse_missing_batches(last, batch, table="db.t", pipeline="p", accepted=(batch, 99))


@pytest.mark.parametrize(
    ("last", "batch", "missing"),
    [
        (None, 1, "does not hold batch 0 of"),
        (4, 6, "does not hold batch 5 of"),
        (4, 8, "does not hold batches 5 to 7 of"),
    ],
)
def test_batches_between_are_named(last: int | None, batch: int, missing: str) -> None:
    with pytest.raises(PipelineFailedError, match=missing) as error:
        refuse_missing_batches(last, batch, table="db.t", pipeline="p")
    assert "table db.t" in str(error.value) and "Restore the checkpoint of the same time" in str(error.value)
    assert "freshet resync FILE where a database is read" in str(error.value)
    with pytest.raises(
        PipelineFailedError, match="Put the newest ledger back; .* freshet resync FILE where a database is"
    ):
        refuse_missing_batches(last, batch, table="db.t", pipeline="p", is_ledger=True)


@pytest.mark.slow
def test_a_table_that_was_restored_from_a_backup(engine: PipelineEngine, tmp_path: Path) -> None:
    """Refused with the newest checkpoint, right with the checkpoint of the same time."""
    (tmp_path / "in").mkdir()
    (tmp_path / "p.yaml").write_text(PIPELINE.format(folder=tmp_path))
    _run(engine, tmp_path, 1)
    for name in ("warehouse", "checkpoint"):
        shutil.copytree(tmp_path / name, tmp_path / "backup" / name)
    _run(engine, tmp_path, 2)
    _restore(tmp_path, "warehouse")
    with pytest.raises(PipelineFailedError, match="does not hold batch 1 of pipeline 'p'"):
        _run(engine, tmp_path, 3)
    assert _ids(tmp_path) == [1]
    _restore(tmp_path, "checkpoint")
    _run(engine, tmp_path, 4)
    assert _ids(tmp_path) == [1, 2, 3, 4]


def test_a_table_that_was_rolled_back(engine: PipelineEngine, tmp_path: Path) -> None:
    """The pipeline stops at its next batch, and goes on where it is told that the batches may be missing."""
    (tmp_path / "in").mkdir()
    (tmp_path / "p.yaml").write_text(PIPELINE.format(folder=tmp_path))
    for number in (1, 2, 3):
        _run(engine, tmp_path, number)
    Catalog(tmp_path / "warehouse").table("db.t").rollback(undo=("p", 1))
    assert _ids(tmp_path) == [1]
    with pytest.raises(PipelineFailedError, match="--accept-loss-of 1..2"):
        _run(engine, tmp_path, 4)
    config = load_pipeline(tmp_path / "p.yaml")
    for wrong in ((1, 1), (2, 2)):
        with pytest.raises(PipelineFailedError, match="does not hold batches 1 to 2"):
            Runner(engine, [config.accepting_loss(*wrong)], on_progress=lambda progress: None).run()
    Runner(engine, [config.accepting_loss(1, 2)], on_progress=lambda progress: None).run()
    assert _ids(tmp_path) == [1, 4]
    _run(engine, tmp_path, 5)
    assert _ids(tmp_path) == [1, 4, 5]


@pytest.mark.slow
def test_a_table_that_was_rolled_back_during_a_batch(
    engine: PipelineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was committed upon the rollback, and the pipeline went on: those before it were lost in silence."""
    (tmp_path / "in").mkdir()
    (tmp_path / "p.yaml").write_text(PIPELINE.format(folder=tmp_path))
    for number in (1, 2):
        _run(engine, tmp_path, number)
    commit = TableCommit.commit

    def after_a_rollback(self: TableCommit, *arguments: Any, **named: Any) -> TableReport:
        monkeypatch.setattr(TableCommit, "commit", commit)
        Catalog(tmp_path / "warehouse").table("db.t").rollback(undo=("p", 1))
        return commit(self, *arguments, **named)

    monkeypatch.setattr(TableCommit, "commit", after_a_rollback)
    with pytest.raises(PipelineFailedError, match="rolled back to before commit 1 of user 'p'"):
        _run(engine, tmp_path, 3)
    assert _ids(tmp_path) == [1]
    with pytest.raises(PipelineFailedError, match=r"--accept-loss-of 1\.\.1"):
        _run(engine, tmp_path, 4)
    assert _ids(tmp_path) == [1]


def _run(engine: PipelineEngine, folder: Path, number: int) -> None:
    """The pipeline, to the end of what is there, with one file more."""
    path = folder / "in" / f"{number}.json"
    path.write_text(f'{{"id": {number}}}\n')
    os.utime(path, (number, number))
    Runner(engine, [load_pipeline(folder / "p.yaml")], on_progress=lambda progress: None).run()


def _restore(folder: Path, name: str) -> None:
    shutil.rmtree(folder / name)
    shutil.copytree(folder / "backup" / name, folder / name)


def _ids(folder: Path) -> list[int]:
    return sorted(Catalog(folder / "warehouse").table("db.t").scan().to_arrow()["id"].to_pylist())


def test_an_older_ledger_is_no_loss_that_can_be_accepted() -> None:
    with pytest.raises(
        PipelineFailedError, match=r"ledger db\.l does not hold batches 2 to 3 .*give the pipeline another"
    ) as e:
        refuse_missing_batches(1, 4, table="db.l", pipeline="p", is_ledger=True)
    assert "--accept-loss-of" not in str(e.value)
