"""One call of `freshet run`, whatever the engine: which one that is, what is printed, which brokers are watched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from shutil import get_terminal_size
from typing import TYPE_CHECKING, ParamSpec

from freshet.pipeline.commands.failure_report import Refusals
from freshet.pipeline.commands.output import complain, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.sections import RunOn
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError, Problem
from freshet.pipeline.identity.checkpoint_topics import renewal_text
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.progress_report import ProgressReporter
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.run_note import RunNotes
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.running.signals import when_asked_to_stop

if TYPE_CHECKING:  # what is loaded where metrics are published
    from freshet.pipeline.running.run_totals import RunTotals

P = ParamSpec("P")


def on_one_engine(configs: Sequence[PipelineConfig], given: RunOn | None) -> tuple[list[PipelineConfig], list[Problem]]:
    """The pipelines on the engine that the call or their files name, and the files that name another one than the first
    of them."""
    if given is not None:
        return [config.running_on(given) for config in configs], []
    first = configs[0] if configs else None
    other = [each for each in configs if first is not None and each.run_on != first.run_on]
    problems = [
        each.origin.placed(
            Problem(
                ("run_on",),
                f"is {each.run_on}, and {first.run_on} in {first.origin.path or first.name}: files of one call run on "
                "one engine; run them apart, or give --on spark or --on local",
            )
        )
        for each in other
        if first is not None
    ]
    return list(configs), problems


def reporter_of(configs: Sequence[PipelineConfig], progress: str, *, sums_up: bool = False) -> ProgressReporter:
    """What prints the batches of a run; `sums_up`: as text, one line a second."""
    return ProgressReporter(
        say,
        say if progress == "text" else complain,
        dead_letter_tables={config.name: config.dead_letter_table for config in configs},
        as_json=progress == "json",
        sums_up=sums_up,
        width=get_terminal_size().columns,
    )


def run_on(
    engine: PipelineEngine,
    configs: Sequence[PipelineConfig],
    reporter: ProgressReporter,
    *,
    refusals: Refusals,
    restarts: int,
    totals: RunTotals | None = None,
) -> None:
    """Runs the pipelines until they end or are asked to stop; raises what made one of them fail.

    One that fails of what may pass is started again, `restarts` times in a row. `refusals` says whether the others live
    when it is given up; `totals` are told what is to be published.
    """
    topic_ids = spark_part("brokers").topic_ids(configs, say=complain) if needs_kafka(configs) else {}
    notes = RunNotes(configs, lambda config: runner.checkpoint_of(config))
    told: list[ProgressReporter | RunNotes | RunTotals] = [reporter, notes, *([] if totals is None else [totals])]
    runner = Runner(
        engine,
        configs,
        on_progress=_all([each.take for each in told]),
        on_idle=_all([each.idle for each in told]),
        on_state=_all([each.state for each in told]),
        on_look=_all([each.look for each in told]),
        say=reporter.remark,
        topic_ids=topic_ids,
        restarts=RestartRule(restarts),
        keep_going=refusals.keeps_going,
    )
    ended = threading.Event()

    def stop() -> None:
        ended.set()  # who asks brokers that are away asks no more
        runner.request_stop()

    with when_asked_to_stop(stop), _watched_brokers(configs, runner, topic_ids, ended):
        try:
            runner.run()
        except BaseException as error:
            notes.end(error)
            raise
        else:
            notes.end()
        finally:
            reporter.look(is_last=True)


def _all(functions: Sequence[Callable[P, None]]) -> Callable[P, None]:
    def call(*arguments: P.args, **named: P.kwargs) -> None:
        for each in functions:
            each(*arguments, **named)

    return call


def needs_kafka(configs: Sequence[PipelineConfig]) -> bool:
    """Whether records of Kafka are read: pipelines of files alone need no client of it."""
    return any(source.is_kafka for config in configs for source in config.sources)


def _watched_brokers(
    configs: Sequence[PipelineConfig],
    runner: Runner,
    topic_ids: Mapping[str, Mapping[str, str]],
    ended: threading.Event,
) -> AbstractContextManager[object]:
    if not needs_kafka(configs):
        return nullcontext()

    def stop(config: PipelineConfig, topics: Sequence[str]) -> None:
        text = f"while it ran {renewal_text(config.checkpoint, topics)}"
        runner.fail(PipelineFailedError(text, pipeline=config.name, kind=ErrorKind.INVALID_REQUEST))

    brokers = spark_part("brokers")
    watching: AbstractContextManager[object] = brokers.watched_brokers(
        configs,
        say=complain,
        topic_ids=topic_ids,
        on_renewed=stop,
        on_answer=brokers.WatchedTransactions(configs, runner.checkpoint_of, complain).look,
        ended=ended,
    )
    return watching
