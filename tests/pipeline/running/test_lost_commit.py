"""A run whose last commit another program has replaced ends with the error that names it, however it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.errors.failure import exit_code_of
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import LostCommitError
from freshet.storage.table import Table
from tests.kit.bucket_store import CHOSEN, copy_over
from tests.pipeline.small_pipeline import TEXT

ENDS_BY_ITSELF, IS_STOPPED = "trigger: {available_now: true}\n", "trigger: {processing_time: 100 ms}\n"


def runner(engine: PipelineEngine, folder: Path, trigger: str, *, reads_bad_records: bool = False) -> Runner:
    (folder / "in").mkdir()
    bad = "not JSON\n" * reads_bad_records
    (folder / "in" / "a.json").write_text("".join(json.dumps({"id": each}) + "\n" for each in range(3)) + bad)
    text = TEXT.replace(ENDS_BY_ITSELF, trigger).replace("FOLDER", str(folder))
    (folder / "p.yaml").write_text(f"{text}catalog: {{commit.coordination: exclusive-put}}\n")
    made = Runner(
        engine, [load_pipeline(folder / "p.yaml", {})], say=lambda _: None, on_progress=lambda _: made.request_stop()
    )
    return made


def replaced_when_it_ends(monkeypatch: pytest.MonkeyPatch, *tables: Table) -> None:
    """The copy of another program comes between the last batch and the end."""
    close = QueryRun.close

    def replaced(self: QueryRun) -> None:
        for table in tables:
            latest = table.latest_snapshot()
            assert latest is not None
            copy_over(table.store, latest.id)
        close(self)

    monkeypatch.setattr(QueryRun, "close", replaced)


def made_table(folder: Path) -> Table:
    """With a commit before the run: a copy is made upon another snapshot."""
    table = Catalog(folder / "w", options=CHOSEN).create_table(
        "s.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1}
    )
    with table.writer("before") as writer:
        writer.write([{"id": 100}])
        writer.commit()
    return table


@pytest.mark.parametrize("trigger", [ENDS_BY_ITSELF, IS_STOPPED])
def test_a_batch_that_was_replaced_before_the_run_ended_is_named(
    engine: PipelineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trigger: str
) -> None:
    table = made_table(tmp_path)
    running = runner(engine, tmp_path, trigger)
    replaced_when_it_ends(monkeypatch, table)
    with pytest.raises(PipelineFailedError, match="was made and is lost") as caught:
        running.run()
    assert exit_code_of(caught.value) == 65
    assert isinstance(caught.value.__cause__, LostCommitError)
    [lost] = table.lost_commits()
    command = f"freshet repair lost-commit {tmp_path}/w s.t --manifest-list {lost.manifest_list}"
    assert str(caught.value).endswith(command)
    table.repair_lost_commit(lost.manifest_list)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 100]


def test_dead_letters_that_were_replaced_are_named(
    engine: PipelineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_table(tmp_path)
    running = runner(engine, tmp_path, ENDS_BY_ITSELF, reads_bad_records=True)
    config = load_pipeline(tmp_path / "p.yaml", {})
    letters = open_dead_letters(Catalog(tmp_path / "w", options=CHOSEN), config.dead_letter_table)
    with letters.writer("before") as writer:
        writer.write([{"pipeline": "other", "reason": "r", "micro_batch_id": 0}])
        writer.commit()
    replaced_when_it_ends(monkeypatch, letters)
    with pytest.raises(PipelineFailedError, match=rf"{config.dead_letter_table}: .*was made and is lost"):
        running.run()
    [lost] = letters.lost_commits()
    assert lost.row_count == 1
