"""Pipelines without Spark by the runner that runs those of Spark: restarts, failures, stops."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import load_pipeline, load_pipelines
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.workers import WorkerDiedError, WorkerPool, died_text
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.progress import PipelineState, Progress
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.running.running_pipeline import failed_pipeline
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import CorruptDataError, DifferentInputError, RetryableError

PIPELINE = """\
name: NAME
run_on: local
sources: [{files: {path: "FOLDER/in-NAME"}, format: json}]
table: {warehouse: "FOLDER/w", name: s.NAME, columns: {id: BIGINT}, primary_key: [id], options: {bucket: 1}}
trigger: TRIGGER
checkpoint: "FOLDER/c-NAME"
"""
QUICK = RestartRule(3, first_wait_s=0.01)
ONCE, ALWAYS = "{available_now: true}", "{processing_time: 0 s}"


class Pipelines:
    """Pipelines of files, some of whose batches fail as told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.errors: list[Exception] = []
        """Of batches of `a`, each once."""
        self.states: list[PipelineState] = []
        self.batches: list[Progress] = []
        self.came = threading.Event()
        write = QueryRun.write

        def failing(run: QueryRun, batch: Any) -> Any:
            if self.errors and run.table_name == "s.a":
                raise self.errors.pop(0)
            return write(run, batch)

        monkeypatch.setattr(QueryRun, "write", failing)

    def runner(self, names: str = "ab", trigger: str = ONCE, **given: Any) -> Runner:
        paths = []
        for name in names:
            (self._folder / f"in-{name}").mkdir(exist_ok=True)
            self.put(name, 1)
            paths.append(self._folder / f"{name}.yaml")
            text = PIPELINE.replace("NAME", name).replace("FOLDER", str(self._folder))
            paths[-1].write_text(text.replace("TRIGGER", trigger))

        def take(progress: Progress) -> None:
            self.batches.append(progress)
            self.came.set()

        configs = load_pipelines(paths, {})
        pool = WorkerPool(0)
        return Runner(LocalPipelines(pool), configs, on_progress=take, on_state=self.states.append, **given)

    def put(self, name: str, number: int) -> None:
        (self._folder / f"in-{name}" / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")

    def rows(self, name: str) -> int:
        return Catalog(self._folder / "w").table(f"s.{name}").scan().count()


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipelines:
    return Pipelines(tmp_path, monkeypatch)


@pytest.mark.dear("the first one loads what pipelines load")
def test_what_may_pass_is_tried_again_and_the_other_goes_on(pipelines: Pipelines) -> None:
    pipelines.errors = [RetryableError("disk full"), RetryableError("disk full")]
    pipelines.runner(restarts=QUICK).run()
    assert (pipelines.rows("a"), pipelines.rows("b")) == (1, 1)
    assert [each.restart and each.restart.number for each in pipelines.states] == [1, 2]
    assert {each.pipeline for each in pipelines.states} == {"a"}
    assert sorted((each.report.pipeline, each.report.micro_batch_id) for each in pipelines.batches) == [
        ("a", 0),
        ("b", 0),
    ]


def test_any_other_cause_ends_all(pipelines: Pipelines) -> None:
    pipelines.errors = [CorruptDataError("torn", path="/t/f")]
    with pytest.raises(PipelineFailedError, match="torn") as failed:
        pipelines.runner(trigger=ALWAYS, restarts=QUICK).run()
    assert (failed.value.exit_code, failed.value.pipeline, pipelines.states) == (65, "a", [])


def test_one_that_fails_for_good_leaves_the_others_running(pipelines: Pipelines) -> None:
    pipelines.errors = [CorruptDataError("torn", path="/t/f")]
    with pytest.raises(PipelineFailedError, match="torn"):
        pipelines.runner(keep_going=True).run()
    assert (pipelines.rows("a"), pipelines.rows("b")) == (0, 1)


def test_a_stop_lets_the_batch_finish_and_begins_no_other(pipelines: Pipelines) -> None:
    runner = pipelines.runner("b", ALWAYS)
    running = threading.Thread(target=runner.run)
    running.start()
    assert pipelines.came.wait(300)
    runner.request_stop()
    running.join(300)
    assert not running.is_alive()
    pipelines.put("b", 2)
    assert pipelines.rows("b") == 1
    pipelines.runner("b").run()
    assert pipelines.rows("b") == 2


def test_a_second_run_is_told_so_by_the_checkpoint_or_by_the_table(
    tmp_path: Path, pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs in a batch while the other one does it and goes on: the table has forgotten what it was of."""
    write, is_first = QueryRun.write, True

    def overtaken(run: QueryRun, batch: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            batch.settle()
            for number in range(2, 8):
                pipelines.put("b", number)
                pipelines.runner("b").run()
        return write(run, batch)

    monkeypatch.setattr(QueryRun, "write", overtaken)
    with pytest.raises(PipelineFailedError, match="commits/0: another run of this pipeline is using its check") as told:
        pipelines.runner("b").run()
    assert told.value.__cause__ is not None
    assert isinstance(told.value.__cause__.__cause__, DifferentInputError) and pipelines.rows("b") == 7


@pytest.mark.parametrize(("progressed", "kind"), [(True, ErrorKind.RETRYABLE), (False, ErrorKind.INTERNAL)])
def test_a_worker_that_was_killed_is_worth_a_try_behind_the_first_batch(
    tmp_path: Path, pipelines: Pipelines, progressed: bool, kind: ErrorKind
) -> None:
    pipelines.runner("a")
    config = load_pipeline(tmp_path / "a.yaml", {})
    died = WorkerDiedError(died_text(9))
    assert failed_pipeline(config, died, has_progressed=progressed).kind is kind
