"""Pipelines that fail while others run: what may pass is tried again, else all end or, if asked, only that one."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.running import running_pipeline
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.progress import PipelineState
from freshet.pipeline.running.progress_report import ProgressReporter
from freshet.pipeline.running.restarts import Restart, RestartRule
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.running.running_pipeline import RunningPipeline
from freshet.pipeline.running.spark_pipeline import SparkPipelines
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import (
    ConflictError,
    CorruptDataError,
    OutOfMemoryError,
    RetryableError,
    UnknownOutcomeError,
)

PIPELINE = """
name: NAME
sources:
  - files: {path: "FOLDER/in", maxFilesPerTrigger: 1}
    format: json
table: {warehouse: "FOLDER/w", name: s.NAME, columns: {id: BIGINT}, primary_key: [id], options: {bucket: 1}}
trigger: TRIGGER
checkpoint: "FOLDER/c-NAME"
"""
QUICK = RestartRule(3, first_wait_s=0.01)
ONCE = "{available_now: true}"
FOREVER = "{processing_time: 50 milliseconds}"


class Pipelines:
    """Pipelines a and b over the same files, a batch each; tries of `a` raise what `errors` says, one after another."""

    def __init__(self, engine: PipelineEngine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: list[PipelineState] = []
        self.said: list[str] = []
        self.errors: list[Exception | None] = []
        self.tries: Counter[str] = Counter()
        self._engine, self._folder = engine, folder
        write: Callable[..., Any] = QueryRun.write

        def failing(writer: QueryRun, *arguments: Any) -> Any:
            name = writer._commit_user
            self.tries[name] += 1
            error = self.errors.pop(0) if name == "a" and self.errors else None
            if error is not None:
                raise error
            return write(writer, *arguments)

        monkeypatch.setattr(QueryRun, "write", failing)
        (folder / "in").mkdir()
        (folder / "in" / "1.json").write_text(json.dumps({"id": 1}) + "\n")

    def runner(
        self,
        *,
        b: str = ONCE,
        names: str = "ab",
        on_state: Callable[[PipelineState], None] = lambda state: None,
        **arguments: Any,
    ) -> Runner:
        def note(state: PipelineState) -> None:
            self.states.append(state)
            on_state(state)

        paths = []
        for name, trigger in zip(names, (ONCE, b), strict=False):
            paths.append(self._folder / f"{name}.yaml")
            text = PIPELINE.replace("NAME", name).replace("FOLDER", str(self._folder)).replace("TRIGGER", trigger)
            paths[-1].write_text(text)
        self.running = Runner(self._engine, load_pipelines(paths, {}), say=self.said.append, on_state=note, **arguments)
        return self.running

    def rows(self, name: str) -> int:
        return Catalog(self._folder / "w").table(f"s.{name}").scan().count()


@pytest.fixture
def pipelines(engine: PipelineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipelines:
    return Pipelines(engine, tmp_path, monkeypatch)


@pytest.fixture
def pipeline_file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(PIPELINE.replace("NAME", "a").replace("FOLDER", str(tmp_path)).replace("TRIGGER", ONCE))
    return path


def test_waits_grow_and_a_good_while_begins_again() -> None:
    rule = RestartRule()
    waits = [rule.next(number, ran_s=1.0) for number in range(6)]
    assert [each and each.wait_s for each in waits] == [2, 4, 8, 16, 32, None]
    assert rule.next(5, ran_s=600.0) == Restart(1, 2.0)
    assert rule.next(5, ran_s=1.0, has_progressed=True) == Restart(1, 2.0)
    assert RestartRule(20).next(15, ran_s=1.0) == Restart(16, 60.0)
    assert RestartRule(0).next(0, ran_s=10_000.0) is None


def test_restarts_that_fail_before_the_query_starts_are_counted(
    pipeline_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that stays away fails each restart while the table is opened, hours after the last good start."""
    now_s = 0.0
    monkeypatch.setattr(running_pipeline, "time", SimpleNamespace(monotonic=lambda: now_s))
    (config,) = load_pipelines([pipeline_file], {})
    nothing: Any = None
    pipeline = RunningPipeline(SparkPipelines(nothing), config, nothing, threading.Event(), {})

    def away() -> None:
        raise RetryableError("the store is away")

    monkeypatch.setattr(pipeline, "plan", away)
    now_s = 36_000.0
    pipeline._gate.number = 7  # the batch in which it failed, hours before
    numbers = []
    while (restart := pipeline.wait_by(QUICK)) is not None and len(numbers) < 10:
        numbers.append(restart.number)
        now_s += 1.0
        with pytest.raises(PipelineFailedError, match="the store is away"):
            pipeline.restart()
    assert numbers == [1, 2, 3]


def test_what_may_pass_is_tried_again_and_the_other_goes_on(pipelines: Pipelines) -> None:
    pipelines.errors = [RetryableError("disk full"), ConflictError("lost"), UnknownOutcomeError("unknown")]
    pipelines.runner(restarts=QUICK).run()
    assert (pipelines.rows("a"), pipelines.rows("b")) == (1, 1)
    assert (pipelines.tries["a"], pipelines.tries["b"]) == (4, 1)
    assert [each.restart and each.restart.number for each in pipelines.states] == [1, 2, 3]
    assert {each.pipeline for each in pipelines.states} == {"a"}
    assert any("RetryableError: pipeline 'a': disk full; starting again in 0.01 s" in text for text in pipelines.said)


def test_a_single_pipeline_is_tried_again_until_that_is_given_up(pipelines: Pipelines) -> None:
    pipelines.errors = [RetryableError(f"try {number}") for number in range(10)]
    with pytest.raises(PipelineFailedError, match="pipeline 'a': try 3") as failed:
        pipelines.runner(names="a", restarts=QUICK).run()
    assert (failed.value.kind, failed.value.exit_code) == (ErrorKind.RETRYABLE, 75)
    assert pipelines.tries["a"] == 4


def test_restarts_count_anew_where_a_batch_more_was_done(pipelines: Pipelines, tmp_path: Path) -> None:
    """One that fails in every batch, and twice in the last: each restart has brought it further but the last one."""
    for number in range(2, 7):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")
    once = [RetryableError(f"batch {number}") for number in range(6)]
    pipelines.errors = [each for error in once for each in (error, None)][:-1] + [RetryableError("again")] * 2
    with pytest.raises(PipelineFailedError, match="pipeline 'a': again"):
        pipelines.runner(names="a", restarts=RestartRule(2, first_wait_s=0.01)).run()
    assert pipelines.rows("a") == 5
    assert [each.restart and each.restart.number for each in pipelines.states] == [1, 1, 1, 1, 1, 1, 2]


def test_any_other_cause_ends_all(pipelines: Pipelines) -> None:
    pipelines.errors = [CorruptDataError("torn", path="/t/f")]
    with pytest.raises(PipelineFailedError, match="torn") as failed:
        pipelines.runner(b=FOREVER, restarts=QUICK).run()
    assert (failed.value.exit_code, pipelines.tries["a"], pipelines.states) == (65, 1, [])


def test_with_keep_going_the_other_lives_and_the_dead_one_is_reported(pipelines: Pipelines) -> None:
    pipelines.errors = [CorruptDataError("torn", path="/t/f")]
    lines: list[str] = []
    reporter = ProgressReporter(lines.append, lambda text: None, dead_letter_tables={}, as_json=True)

    def take(state: PipelineState) -> None:
        reporter.state(state)
        pipelines.running.request_stop()

    with pytest.raises(PipelineFailedError, match="torn") as failed:
        pipelines.runner(b=FOREVER, restarts=QUICK, keep_going=True, on_state=take).run()
    assert failed.value.exit_code == 65
    (facts,) = map(json.loads, lines)
    assert {key: value for key, value in facts.items() if value is not None and key not in ("error", "time")} == {
        "pipeline": "a",
        "state": "failed",
        "batch": 0,
        "kind": "CorruptDataError",
        "retryable": False,
    }
    assert "torn" in facts["error"]
    assert not any(text.startswith("b: ") and "Error" in text for text in pipelines.said)


def test_the_others_come_to_their_end_after_one_is_dead(pipelines: Pipelines) -> None:
    pipelines.errors = [CorruptDataError("torn", path="/t/f")]
    with pytest.raises(PipelineFailedError, match="torn"):
        pipelines.runner(keep_going=True).run()
    assert pipelines.rows("b") == 1


def test_a_stop_while_one_waits_is_a_good_end(pipelines: Pipelines) -> None:
    pipelines.errors = [RetryableError("away")]
    rule = RestartRule(5, first_wait_s=3600)
    pipelines.runner(b=FOREVER, restarts=rule, on_state=lambda state: pipelines.running.request_stop()).run()
    assert pipelines.tries["a"] == 1


CRASH = PySparkException("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)")


def test_a_crash_at_the_first_batch_would_come_again_and_a_later_one_may_not(
    pipelines: Pipelines, tmp_path: Path
) -> None:
    pipelines.errors = [CRASH]
    with pytest.raises(PipelineFailedError) as failed:
        pipelines.runner(names="a", restarts=QUICK).run()
    assert (failed.value.kind, failed.value.exit_code, pipelines.tries["a"]) == (ErrorKind.INTERNAL, 1, 1)
    (tmp_path / "in" / "2.json").write_text(json.dumps({"id": 2}) + "\n")
    pipelines.errors = [None, CRASH]
    pipelines.runner(names="a", restarts=QUICK).run()
    assert (pipelines.rows("a"), pipelines.tries["a"]) == (2, 4)
    assert [each.kind for each in pipelines.states] == [ErrorKind.RETRYABLE]


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError("no room")], ids=type)
def test_a_batch_that_runs_out_of_memory_three_times_is_given_up(pipelines: Pipelines, error: Exception) -> None:
    """Whoever starts it again: two tries of one process, one of the next."""
    pipelines.errors = [error] * 3
    for restarts, kind, code in ((RestartRule(1, first_wait_s=0.01), ErrorKind.RETRYABLE, 75), (QUICK, None, 1)):
        with pytest.raises(PipelineFailedError, match="memory|MemoryError|no room") as failed:
            pipelines.runner(names="a", restarts=restarts).run()
        assert (failed.value.kind, failed.value.exit_code) == (kind or ErrorKind.INTERNAL, code)
    assert pipelines.tries["a"] == 3
    pipelines.runner(names="a", restarts=QUICK).run()
    assert pipelines.rows("a") == 1
