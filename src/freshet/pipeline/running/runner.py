"""Runs pipelines: several files on one engine, until they end, one fails, or they are asked to stop.

    1. tables are compared, sources are understood, for all    a mistake here: nothing has been written, exit code 2;
       files; then tables are created, checkpoints claimed     with `keep_going` the others go on, 2 at the end
    2. one query per file is started
    3. wait: a query fails                                     exit code by the kind of the error (`error_kind`)
       a. worth another try, and tries are left                it is started again, the others go on
       b. else, with `keep_going`                              it stays dead and is reported, the others go on
       c. else                                                 it stops the others
    4. SIGTERM, Ctrl-C: every query finishes its batch         exit code 0

On a stop no other batch begins (`engine_pipeline.Gate`). Where the engine dies, all queries are lost with it, and
nothing is started again in this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.errors.error_kind import worst
from freshet.pipeline.errors.failure import is_retryable
from freshet.pipeline.exceptions import ConfigurationError, PipelineError, PipelineFailedError, Problem
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace
from freshet.pipeline.query.driver.table_setup import refuse_other_table
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.progress import PipelineState, Progress, ProgressHub
from freshet.pipeline.running.progress_report import progress_line
from freshet.pipeline.running.restarts import NO_RESTARTS, Restart, RestartRule
from freshet.pipeline.running.running_pipeline import RunningPipeline, failed_pipeline
from freshet.storage.exceptions import StorageError

STOP_POLL_S: Final = 0.02

REMIND_S: Final = 60.0
"""Between two messages about a pipeline that is dead while others go on."""


class Runner:
    """Runs some pipelines on one engine. `on_progress` gets every micro-batch, `on_idle` the name of a pipeline that
    waits for records and its lag, `on_state` every pipeline that waits for a restart or is dead, `say` what people
    should know; `on_look` is called each time the runner looks after them, and at the end."""

    def __init__(
        self,
        engine: PipelineEngine,
        configs: Sequence[PipelineConfig],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        on_idle: Callable[[str, int | None], None] = lambda pipeline, lag: None,
        on_state: Callable[[PipelineState], None] = lambda state: None,
        on_look: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
        topic_ids: Mapping[str, Mapping[str, str]] | None = None,
        restarts: RestartRule = NO_RESTARTS,
        keep_going: bool = False,
    ) -> None:
        """`topic_ids` are those of the Kafka topics by pipeline, as far as they are known."""
        self._engine = engine
        self._may_fail_by: tuple[type[Exception], ...] = (PipelineError, StorageError, *engine.errors)
        self._hub = ProgressHub(on_progress or (lambda progress: say(progress_line(progress))), on_idle)
        self._say = say
        self._on_state = on_state
        self._on_look = on_look
        self._restarts = restarts
        self._keep_going = keep_going
        self._stop = threading.Event()
        self._is_asked = False
        self._found: dict[str, PipelineFailedError] = {}
        self._refused: list[Problem] = []
        ids = topic_ids or {}
        self._pipelines = [
            RunningPipeline(engine, config, self._hub, self._stop, ids.get(config.name, {})) for config in configs
        ]
        self._reported_s: dict[str, float] = {}

    def fail(self, error: PipelineFailedError) -> None:
        """Ends a pipeline because of something that was found outside of its batches, as if one of them had failed."""
        assert error.pipeline is not None
        self._found[error.pipeline] = error
        if not self._keep_going:
            self._stop.set()

    def request_stop(self) -> None:
        """Asks every query to finish its batch; returns at once and may be called from a signal handler."""
        self._is_asked = True
        self._stop.set()

    def run(self) -> None:
        """Runs until all queries have ended. Raises what made one of them fail, or several."""
        try:
            failures = self._run()
        except Exception as error:
            death = self._engine.death(error, may_survive=self._may_survive())
            if death is None:
                raise
            with suppress(Exception):  # of what talks to the process that is gone
                self._close()
            raise death from error
        if len(failures) > 1:
            text = "\n".join(str(failure) for failure in failures)
            raise PipelineFailedError(text, kind=worst(failure.kind for failure in failures)) from failures[0]
        for failure in failures:
            raise failure

    def _run(self) -> list[PipelineFailedError]:
        for each in self._pipelines:  # 1
            self._prepare(each, lambda each: refuse_other_table(each.config))
        for each in self._pipelines:
            self._prepare(each, RunningPipeline.plan)
        try:
            for each in self._pipelines:
                self._prepare(each, RunningPipeline.open)
            with self._engine.reporting_to(self._hub):
                try:
                    for each in self._pipelines if self._may_read_on() else ():  # 2
                        if self._prepare(each, RunningPipeline.start):
                            place = each.config.checkpoint
                            self._say(f"{each.name}: running into {each.target_text}, checkpoint {place}")
                    self._watch()  # 3
                finally:
                    self._finish()  # 4
        finally:
            self._close()
        for each in self._pipelines:
            is_read = each.config.trigger.available_now and each.failure is None and not self._is_asked
            if is_read and _reads_kafka(each.config):
                from freshet.pipeline.checks.open_transactions import waiting_texts

                for text in waiting_texts(each.config, each.checkpoint):
                    self._say(f"{each.name}: {text}")
        failed = [each.failure for each in self._pipelines if each.failure is not None]
        if self._refused and all(isinstance(each.__cause__, ConfigurationError) for each in failed):
            raise ConfigurationError(self._refused)
        return failed

    def _prepare(self, each: RunningPipeline, step: Callable[[RunningPipeline], None]) -> bool:
        """A step of the start, unless an earlier one has failed: with `keep_going` the others go on, and what may pass
        is tried again."""
        if each.failure is not None or each.waits_until_s is not None:
            return False
        try:
            step(each)
        except self._may_fail_by as error:
            if not self._keep_going:
                raise
            self._take(each, failed_pipeline(each.config, error))
            if each.failure is not None and isinstance(error, ConfigurationError):
                self._refused += error.problems
            return False
        return True

    def checkpoint_of(self, config: PipelineConfig) -> CheckpointPlace:
        """The folder of a pipeline's checkpoint, as far as it can be reached by now."""
        return next((each.checkpoint for each in self._pipelines if each.config is config), config.checkpoint)

    def _may_read_on(self) -> bool:
        """Waits for transactions that the checkpoints lie behind; False when it was asked to stop meanwhile."""
        places = [
            (each.config, each.checkpoint)
            for each in self._pipelines
            if each.failure is None and _reads_kafka(each.config)
        ]
        if places:  # files alone need no client of Kafka
            from freshet.pipeline.checks.open_transactions import wait_for_transactions

            wait_for_transactions(places, say=self._say, stop=self._stop)
        return not self._stop.is_set()

    def _watch(self) -> None:
        while not self._stop.wait(self._engine.poll_s):
            # A query that fails behind the look is looked after in the next round, and started again if it may be.
            self._on_look()
            were_over = all(each.is_over for each in self._pipelines)
            for each in self._pipelines:
                self._look_after(each)
            if were_over and all(each.is_over for each in self._pipelines):
                return

    def _look_after(self, each: RunningPipeline) -> None:
        if each.failure is not None:
            self._remind(each, each.failure)
        elif each.name in self._found:
            self._end(each)
        elif each.waits_until_s is None:
            failure = each.take_failure()
            if failure is not None:
                self._take(each, failure)
        elif time.monotonic() >= each.waits_until_s:
            self._begin(each, each.restart, "running again")

    def _begin(self, each: RunningPipeline, start: Callable[[], None], text: str) -> None:
        try:
            start()
        except PipelineFailedError as failure:
            self._take(each, failure)
        else:
            self._say(f"{each.name}: {text}")

    def _take(self, each: RunningPipeline, failure: PipelineFailedError) -> None:
        """A pipeline has failed: start it again later, or leave it, or end all."""
        each.close()
        restart = each.wait_by(self._restarts) if is_retryable(failure) else None
        if restart is not None:
            self._on_state(_state_of(each, failure, restart))
            text = f"starting again in {restart.wait_s:g} s (restart {restart.number} of {self._restarts.count_max})"
            self._say(f"{each.name}: {failure.kind}: {failure}; {text}")
            return
        each.failure = failure
        if self._keep_going:
            self._remind(each, failure)
        else:
            self._stop.set()

    def _end(self, each: RunningPipeline) -> None:
        """Ends one pipeline after its batch; comes again until that is done."""
        each.request_stop()
        each.stop_between_batches()
        if not each.is_active:
            each.take_failure()
            each.waits_until_s = None
            self._take(each, self._found[each.name])

    def _remind(self, each: RunningPipeline, failure: PipelineFailedError) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s.get(each.name, -REMIND_S) >= REMIND_S:
            self._reported_s[each.name] = now_s
            self._on_state(_state_of(each, failure))
            self._say(f"{each.name}: failed, the others go on: {failure.kind}: {failure}")

    def _finish(self) -> None:
        """Lets every query that runs finish its batch, then stops it."""
        self._stop.set()
        pause = threading.Event()
        active = [each for each in self._pipelines if each.is_active]
        if active or self._is_asked:  # a query may have seen the request before this thread has
            self._say("finishing the batches that run; again to stop at once")
        while active:
            for each in active:
                each.stop_between_batches()
            pause.wait(STOP_POLL_S)
            active = [each for each in active if each.is_active]
        for each in self._pipelines:
            failure = each.take_failure()
            each.failure = each.failure or self._found.get(each.name) or failure

    def _close(self) -> None:
        for each in self._pipelines:
            each.close()

    def _may_survive(self) -> bool:
        """Whether it is likely that a restart gets past the batches that ran when the Java process died."""
        return all(each.batches_done for each in self._pipelines if each.is_in_batch)


def _state_of(each: RunningPipeline, failure: PipelineFailedError, restart: Restart | None = None) -> PipelineState:
    return PipelineState(
        each.name, each.micro_batch_id, failure.kind, str(failure), is_retryable=is_retryable(failure), restart=restart
    )


def _reads_kafka(config: PipelineConfig) -> bool:
    return any(source.is_kafka for source in config.sources)
