"""What an operator reads of running pipelines: a line or a JSON object per batch, dead letters by reason, idle streams.

    shop-orders: batch 7: 1,000 records in 0.50 s (2,000/s): 900 applied, 64 dead letters, 36 skipped; 5 behind; …
    shop-orders: dead letters so far, in shop.orders_dead_letters: 60 × not a number (column id), 4 × …
    shop-orders: also seen so far: 12 × unknown field more
    shop-orders: warning: records carry a field more, and the table has a column of that name, which this …
    shop-orders: waiting for new records

The second and third are printed when a reason is new, and then every `SUMMARY_EVERY` batches as long as the counts
grow; the fourth once for each column.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.left_out import left_out_text
from freshet.pipeline.batch.table_rounds import BackgroundReport
from freshet.pipeline.running.progress import PipelineState, Progress
from freshet.pipeline.sync.routes import NO_RULE
from freshet.storage.model.display import size_text

SUMMARY_EVERY: Final = 50
"""Batches between two summaries of a pipeline."""

REASONS_SHOWN: Final = 10

_DRIVER_STEPS: Final = ("plan", "job", "commit", "publish")


def progress_line(progress: Progress) -> str:
    """One batch, for people."""
    report, result = progress.report, progress.report.result
    start = f"{report.pipeline}: batch {report.micro_batch_id}: "
    if report.is_replay:
        return f"{start}was committed already, nothing to do"
    outcome = [f"{result.applied:,} applied"]
    outcome += [_plural(result.dead_count, "dead letter")] if result.dead_count else []
    outcome += [f"{result.skipped_count:,} skipped"] if result.skipped_count else []
    seconds = progress.batch_ms / 1000
    speed = f" ({_speed(progress.records_per_s)})" if progress.records_per_s else ""
    parts = [f"{_plural(report.read_count, 'record')} in {seconds:.2f} s{speed}: {', '.join(outcome)}"]
    parts += [] if progress.lag is None else [f"{progress.lag:,} behind"]
    parts += [_merged(result.keys_merged, result.keys_in_python)] if result.keys_merged else []
    if report.rewrite_count:
        parts.append(f"{report.rewritten_bytes:,} bytes written again after another writer's commit")
    parts += [_plural(report.level0_count, "level-0 file"), *_compaction(report), _times(progress)]
    return start + "; ".join(part for part in parts if part)


def progress_facts(progress: Progress) -> dict[str, Any]:
    """One batch, for programs; times are milliseconds."""
    report, result = progress.report, progress.report.result
    return {
        "pipeline": report.pipeline,
        "state": "running",
        "batch": report.micro_batch_id,
        "replay": report.is_replay,
        "snapshots": list(report.snapshot_ids),
        "records": report.read_count,
        "applied": result.applied,
        "dead_letters": dict(result.dead),
        "skipped": dict(result.skipped),
        "notes": dict(result.notes),
        "left_out_columns": list(report.left_out),
        "table_events": list(report.table_events),
        "records_per_s": round(progress.records_per_s, 1),
        "lag": progress.lag,
        "keys_merged": result.keys_merged,
        "lookups": dict(result.lookups),
        "level0_files": report.level0_count,
        "rewrites": report.rewrite_count,
        "rewritten_bytes": report.rewritten_bytes,
        "waited_buckets": result.waited_buckets,
        "background": None if report.background is None else asdict(report.background),
        "beside": _before_rename(report.background),
        "batch_ms": progress.batch_ms,
        "driver_ms": {name: round(value, 1) for name, value in report.times_ms.items()},
        "task_ms": {name: round(value, 1) for name, value in result.times_ms.items()},
        "spark_ms": dict(progress.spark_ms),
    }


def _before_rename(report: BackgroundReport | None) -> dict[str, Any] | None:
    """`background` with the names that it had in earlier versions; until 1.0."""
    if report is None:
        return None
    facts = asdict(report)
    return {"units": facts.pop("units"), "given_way": facts.pop("aborted"), **facts}


def state_facts(state: PipelineState) -> dict[str, Any]:
    """A pipeline that does not run, for programs."""
    restart = state.restart
    return {
        "pipeline": state.pipeline,
        "state": "failed" if restart is None else "restarting",
        "batch": state.micro_batch_id,
        "kind": str(state.kind),
        "retryable": state.is_retryable,
        "error": state.error,
        "restart": None if restart is None else asdict(restart),
    }


@dataclass(slots=True)
class _Seen:
    """What one pipeline has met since it started."""

    dead: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    left_out: set[str] = field(default_factory=set)
    unruled: set[str] = field(default_factory=set)
    summed: tuple[int, int] = (0, 0)
    """Dead letters and notes at the last summary."""
    batches: int = 0
    is_idle: bool = False


class ProgressReporter:
    """Decides what is said and when. Called from several threads.

    `dead_letter_tables` are the names by pipeline. With `as_json`, `say` gets one JSON document per batch and nothing
    else; what people should know goes to `remark`.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        remark: Callable[[str], None],
        *,
        dead_letter_tables: Mapping[str, str],
        as_json: bool = False,
    ) -> None:
        self._say = say
        self._remark = remark
        self._tables = dict(dead_letter_tables)
        self._as_json = as_json
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def take(self, progress: Progress) -> None:
        """Prints one batch."""
        if self._as_json:
            self._say(orjson.dumps(progress_facts(progress)).decode())
        else:
            self._say(progress_line(progress))
        texts = (*self._table_events(progress.report), *self._summary(progress), *self._left_out(progress.report))
        for text in texts:
            self._remark(text)

    def state(self, state: PipelineState) -> None:
        """For programs: a pipeline that does not run; the runner says it to people."""
        if self._as_json:
            self._say(orjson.dumps(state_facts(state)).decode())

    def idle(self, pipeline: str) -> None:
        """Says once that a pipeline waits; the next batch ends that."""
        with self._lock:
            seen = self._seen.setdefault(pipeline, _Seen())
            is_known, seen.is_idle = seen.is_idle, True
        if not is_known:
            self._remark(f"{pipeline}: waiting for new records")

    def _summary(self, progress: Progress) -> list[str]:
        result, pipeline = progress.report.result, progress.report.pipeline
        with self._lock:
            seen = self._seen.setdefault(pipeline, _Seen())
            seen.is_idle = False
            is_new = any(name not in seen.dead for name in result.dead) or any(
                name not in seen.notes for name in result.notes
            )
            seen.dead.update(result.dead)
            seen.notes.update(result.notes)
            seen.batches += 1
            counts = (seen.dead.total(), seen.notes.total())
            if counts == seen.summed or not (is_new or seen.batches % SUMMARY_EVERY == 0):
                return []
            before, seen.summed = seen.summed, counts
            dead, notes = Counter(seen.dead), Counter(seen.notes)
        texts = []
        if counts[0] != before[0]:
            table = self._tables.get(pipeline)
            texts.append(f"{pipeline}: dead letters so far{f', in {table}' if table else ''}: {_counted(dead)}")
        if counts[1] != before[1]:
            texts.append(f"{pipeline}: also seen so far: {_counted(notes)}")
        return texts

    def _table_events(self, report: BatchReport) -> list[str]:
        """What became of tables, and source tables that no rule takes, each once."""
        with self._lock:
            seen = self._seen.setdefault(report.pipeline, _Seen())
            unruled = [reason for reason in report.result.skipped if reason.startswith(NO_RULE)]
            new = [reason for reason in unruled if reason not in seen.unruled]
            seen.unruled.update(new)
        return [f"{report.pipeline}: {text}" for text in (*report.table_events, *new)]

    def _left_out(self, report: BatchReport) -> list[str]:
        with self._lock:
            seen = self._seen.setdefault(report.pipeline, _Seen())
            columns = [name for name in report.left_out if name not in seen.left_out]
            seen.left_out.update(columns)
        return [f"{report.pipeline}: warning: {left_out_text(name)}" for name in columns]


def _counted(counter: Counter[str]) -> str:
    shown = [f"{count:,} × {name}" for name, count in counter.most_common(REASONS_SHOWN)]
    rest = len(counter) - len(shown)
    return ", ".join(shown) + (f" and {_plural(rest, 'other reason')}" if rest else "")


def _compaction(report: BatchReport) -> Iterator[str]:
    """What background compaction did, and what the batch did in its place."""
    waited, background = report.result.waited_buckets, report.background
    if waited:
        yield f"WAITED for the compaction of {_plural(waited, 'bucket')} with too many sorted runs"
    if background is None:
        return
    if background.units:
        yield f"{_plural(background.units, 'background compaction')}, {size_text(background.input_bytes)} read"
    if background.aborted:
        yield f"{_plural(background.aborted, 'background compaction')} dropped: another commit was faster"
    if background.failure is not None:
        yield f"background compaction is failing; batches compact instead: {background.failure}"


def _merged(keys: int, in_python: int) -> str:
    return f"{_plural(keys, 'key')} merged" + (f", {in_python:,} of them value by value" if in_python else "")


def _times(progress: Progress) -> str:
    """Steps of the driver; the job is split by what its tasks did, added up over them."""
    report, tasks = progress.report, progress.report.result.times_ms
    spark = progress.spark_ms
    steps = {name: report.times_ms.get(name, 0.0) for name in _DRIVER_STEPS}
    steps["log"] = float(spark.get("walCommit", 0) + spark.get("commitOffsets", 0))
    inner = {name: value for name, value in tasks.items() if value >= 1}
    text = ", ".join(f"{name} {value:.0f}" for name, value in steps.items() if value >= 1)
    detail = ", ".join(f"{name} {value:.0f}" for name, value in inner.items())
    return f"ms: {text}{f' (tasks: {detail})' if detail else ''}" if text else ""


def _speed(records_per_s: float) -> str:
    return f"{records_per_s:,.0f}/s" if records_per_s >= 10 else f"{records_per_s:.2g}/s"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
