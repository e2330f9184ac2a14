"""What an operator reads of running pipelines: a line or a JSON object per batch, dead letters by reason, idle streams.
Where batches follow each other quickly, a line sums up those of a second.

    shop-orders: batches 7 to 31: 1,000 records in 0.50 s (2,000/s): 900 applied, 64 dead letters, 36 skipped; …
    shop-orders: batch 7: 1,000 records in 0.50 s (2,000/s): 900 applied, 64 dead letters, 36 skipped; 5 behind; …
    shop-orders: batch 8: 10 records in 0.01 s (900/s): 8 applied, 2 dead letters; 2 broke rules; …
    shop-orders: dead letters so far, in shop.orders_dead_letters: 60 × not a number (column id), 4 × …
    shop-orders: rules broken so far: 2 × amount_positive
    shop-orders: also seen so far: 12 × unknown field more
    shop-orders: warning: records carry a field more, and the table has a column of that name, which this …
    shop-orders: waiting for new records

The fourth to sixth are printed when a reason is new, and then every `SUMMARY_EVERY` batches as long as the counts
grow; the seventh once for each column.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson

from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.table_rounds import BackgroundReport
from freshet.pipeline.query.driver.unread_columns import unread_column_text
from freshet.pipeline.query.wire.task_result import summed_counts
from freshet.pipeline.running.progress import PipelineState, Progress
from freshet.pipeline.sync.routes import NO_RULE
from freshet.storage.model.display import plural, rfc3339, shortened, size_text

SUMMARY_EVERY: Final = 50
"""Batches between two summaries of a pipeline."""

IDLE_S: Final = 60.0
"""Between two objects of a pipeline that waits for records."""

_KEYS: Final = (
    *("batch", "replay", "snapshots", "records", "applied", "dead_letters", "skipped", "broken_rules", "notes"),
    *("unread_columns", "table_events", "records_per_s", "lag", "keys_merged", "lookups", "level0_files", "rewrites"),
    *("rewritten_bytes", "waited_buckets", "background", "batch_ms", "driver_ms", "task_ms", "spark_ms"),
    *("kind", "retryable", "error", "restart"),
)

SUM_S: Final = 1.0
"""Between two lines that sum up batches."""

REASONS_SHOWN: Final = 10

_DRIVER_STEPS: Final = ("plan", "job", "commit", "publish")


def progress_line(progress: Progress, first: int | None = None, *, width: int | None = None) -> str:
    """One batch, or the sum of the batches from the `first` on, for people; what is less important is left out of a
    line of more characters than `width`."""
    report, result = progress.report, progress.report.result
    many = f"es {first} to" if first is not None and first < report.micro_batch_id else ""
    start = f"{report.pipeline}: batch{many} {report.micro_batch_id}: "
    if report.is_replay:
        return f"{start}{'were' if many else 'was'} committed already, nothing to do"
    outcome = [f"{result.applied:,} applied"]
    outcome += [plural(result.dead_count, "dead letter")] if result.dead_count else []
    outcome += [f"{result.skipped_count:,} skipped"] if result.skipped_count else []
    seconds = progress.batch_ms / 1000
    parts = [(0, plural(report.read_count, "record")), (2, f" in {seconds:.2f} s")]
    parts += [(4, f" ({_speed(progress.records_per_s)})")] if progress.records_per_s else []
    parts += [(0, f": {', '.join(outcome)}")]
    parts += [(1, f"; {sum(report.broken.values()):,} broke rules")] if report.broken else []
    parts += [] if progress.lag is None else [(3, f"; {progress.lag:,} behind")]
    parts += [(5, f"; {_merged(result.keys_merged, result.keys_in_python)}")] if result.keys_merged else []
    if report.rewrite_count:
        parts.append((5, f"; {report.rewritten_bytes:,} bytes written again after another writer's commit"))
    parts += [(5, f"; {plural(report.level0_count, 'level-0 file')}"), *_compaction(report), *_times(progress)]
    return (
        start + _fitting(parts, None)
        if width is None
        else shortened(start + _fitting(parts, width - len(start)), width)
    )


def _fitting(parts: Sequence[tuple[int, str]], size: int | None) -> str:
    """The parts in their order, by rank those that fit, and those of rank 0."""
    kept, left = set(), size
    for index in sorted(range(len(parts)), key=lambda each: parts[each][0]):
        rank, text = parts[index]
        if left is None or rank == 0 or len(text) <= left:
            kept.add(index)
            left = None if left is None else left - len(text)
    return "".join(text for index, (_, text) in enumerate(parts) if index in kept)


def summed_line(batches: Sequence[Progress], *, width: int | None = None) -> str:
    """The batches of one pipeline since the last line, for people; `width` as in `progress_line`."""
    last, first = batches[-1], batches[0].report.micro_batch_id
    if len(batches) == 1:
        return progress_line(last, width=width)
    reports, batch_ms = [each.report for each in batches], sum(each.batch_ms for each in batches)
    read_count = sum(each.read_count for each in reports)
    report = replace(
        last.report,
        result=summed_counts([each.result for each in reports]),
        read_count=read_count,
        is_replay=all(each.is_replay for each in reports),
        broken=_added([each.broken for each in reports]),
        rewrite_count=sum(each.rewrite_count for each in reports),
        rewritten_bytes=sum(each.rewritten_bytes for each in reports),
        background=_summed_background([each.background for each in reports if each.background is not None]),
        times_ms=_added([each.times_ms for each in reports]),
    )
    speed = read_count * 1000 / batch_ms if batch_ms else 0.0
    spark_ms = _added([each.spark_ms for each in batches])
    return progress_line(Progress(report, speed, last.lag, batch_ms, spark_ms), first, width=width)


def _added(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for each in parts:
        total.update(each)
    return dict(total)


def _summed_background(reports: Sequence[BackgroundReport]) -> BackgroundReport | None:
    if not reports:
        return None
    return replace(
        reports[-1],
        units=sum(each.units for each in reports),
        input_bytes=sum(each.input_bytes for each in reports),
        aborted=sum(each.aborted for each in reports),
    )


def _facts(pipeline: str, state: str, time_ms: int, **known: Any) -> dict[str, Any]:
    """An object of the one form that all have: every key, and None where there is nothing to say."""
    return {"pipeline": pipeline, "state": state, "time": rfc3339(time_ms), **dict.fromkeys(_KEYS), **known}


def progress_facts(progress: Progress, time_ms: int) -> dict[str, Any]:
    """One batch, for programs; times are milliseconds."""
    report, result = progress.report, progress.report.result
    known = {
        "batch": report.micro_batch_id,
        "replay": report.is_replay,
        "snapshots": list(report.snapshot_ids),
        "records": report.read_count,
        "applied": result.applied,
        "dead_letters": dict(result.dead),
        "skipped": dict(result.skipped),
        "broken_rules": dict(report.broken),
        "notes": dict(result.notes),
        "unread_columns": list(report.left_out),
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
        "batch_ms": progress.batch_ms,
        "driver_ms": {name: round(value, 1) for name, value in report.times_ms.items()},
        "task_ms": {name: round(value, 1) for name, value in result.times_ms.items()},
        "spark_ms": dict(progress.spark_ms),
    }
    return _facts(report.pipeline, "running", time_ms, **known)


def state_facts(state: PipelineState, time_ms: int) -> dict[str, Any]:
    """A pipeline that does not run, for programs."""
    restart = state.restart
    known = {
        "batch": state.micro_batch_id,
        "kind": str(state.kind),
        "retryable": state.is_retryable,
        "error": state.error,
        "restart": None if restart is None else asdict(restart),
    }
    return _facts(state.pipeline, "failed" if restart is None else "restarting", time_ms, **known)


@dataclass(slots=True)
class _Seen:
    """What one pipeline has met since it started."""

    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By what is said of them."""
    left_out: set[str] = field(default_factory=set)
    unruled: set[str] = field(default_factory=set)
    summed: Mapping[str, int] = field(default_factory=dict)
    """What they came to at the last summary."""
    batches: int = 0
    is_idle: bool = False
    unsaid: list[Progress] = field(default_factory=list)
    said_s: float = -SUM_S
    """When the last line of its batches was printed."""
    batch: int | None = None
    idle_s: float = -IDLE_S
    """When it was said last that it waits."""


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
        sums_up: bool = False,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """`sums_up`: as text, the batches of a second are one line; `width` is that of a line, in characters."""
        self._say = say
        self.remark = remark
        """Says what people should know, apart from the batches."""
        self._sums_up = sums_up and not as_json
        self._clock = clock
        self._now_ms = now_ms
        self._width = width
        self._tables = dict(dead_letter_tables)
        self._as_json = as_json
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def take(self, progress: Progress) -> None:
        """Prints one batch, or keeps it for the line of this second."""
        if self._as_json:
            self._say(orjson.dumps(progress_facts(progress, self._now_ms())).decode())
        elif self._sums_up:
            with self._lock:
                self._seen.setdefault(progress.report.pipeline, _Seen()).unsaid.append(progress)
            self.look()
        else:
            self._say(progress_line(progress, width=self._width))
        texts = (*self._table_events(progress.report), *self._summary(progress), *self._left_out(progress.report))
        for text in texts:
            self.remark(text)

    def look(self, *, is_last: bool = False) -> None:
        """Prints the lines that are due; with `is_last` all that is not said yet."""
        now_s, lines = self._clock(), []
        with self._lock:
            for seen in self._seen.values():
                if seen.unsaid and (is_last or now_s - seen.said_s >= SUM_S):
                    lines.append(summed_line(seen.unsaid, width=self._width))
                    seen.unsaid, seen.said_s = [], now_s
        for line in lines:
            self._say(line)

    def state(self, state: PipelineState) -> None:
        """For programs: a pipeline that does not run; the runner says it to people."""
        if self._as_json:
            self._say(orjson.dumps(state_facts(state, self._now_ms())).decode())

    def idle(self, pipeline: str, lag: int | None = None) -> None:
        """Says once that a pipeline waits, and for programs every minute; the next batch ends that. Is called every few
        seconds while it waits."""
        self.look(is_last=True)
        now_s = self._clock()
        with self._lock:
            seen = self._seen.setdefault(pipeline, _Seen())
            is_known, seen.is_idle = seen.is_idle, True
            is_due = self._as_json and (not is_known or now_s - seen.idle_s >= IDLE_S)
            seen.idle_s = now_s if is_due else seen.idle_s
        if is_due:
            facts = _facts(pipeline, "idle", self._now_ms(), batch=seen.batch, lag=lag)
            self._say(orjson.dumps(facts).decode())
        if not is_known:
            self.remark(f"{pipeline}: waiting for new records")

    def _summary(self, progress: Progress) -> list[str]:
        report, table = progress.report, self._tables.get(progress.report.pipeline)
        said: dict[str, Mapping[str, int]] = {
            f"dead letters so far{f', in {table}' if table else ''}": report.result.dead,
            "rules broken so far": report.broken,
            "also seen so far": report.result.notes,
        }
        with self._lock:
            seen = self._seen.setdefault(report.pipeline, _Seen())
            seen.is_idle, seen.batch = False, report.micro_batch_id
            is_new = any(counts.keys() - seen.counts[head].keys() for head, counts in said.items())
            for head, counts in said.items():
                seen.counts[head].update(counts)
            seen.batches += 1
            if not (is_new or seen.batches % SUMMARY_EVERY == 0):
                return []
            totals = {head: seen.counts[head].total() for head in said}
            before, seen.summed = seen.summed, totals
            grown = [head for head in said if totals[head] != before.get(head, 0)]
            return [f"{report.pipeline}: {head}: {_counted(seen.counts[head])}" for head in grown]

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
        return [f"{report.pipeline}: warning: {unread_column_text(name)}" for name in columns]


def _counted(counter: Counter[str]) -> str:
    shown = [f"{count:,} × {name}" for name, count in counter.most_common(REASONS_SHOWN)]
    rest = len(counter) - len(shown)
    return ", ".join(shown) + (f" and {plural(rest, 'other reason')}" if rest else "")


def _compaction(report: BatchReport) -> Iterator[tuple[int, str]]:
    """What background compaction did, and what the batch did in its place."""
    waited, background = report.result.waited_buckets, report.background
    if waited:
        yield 1, f"; WAITED for the compaction of {plural(waited, 'bucket')} with too many sorted runs"
    if background is None:
        return
    if background.units:
        yield 5, f"; {plural(background.units, 'background compaction')}, {size_text(background.input_bytes)} read"
    if background.aborted:
        yield 5, f"; {plural(background.aborted, 'background compaction')} dropped: another commit was faster"
    if background.failure is not None:
        yield 1, f"; background compaction is failing; batches compact instead: {background.failure}"


def _merged(keys: int, in_python: int) -> str:
    return f"{plural(keys, 'key')} merged" + (f", {in_python:,} of them value by value" if in_python else "")


def _times(progress: Progress) -> Iterator[tuple[int, str]]:
    """Steps of the driver; the job is split by what its tasks did, added up over them."""
    report, tasks = progress.report, progress.report.result.times_ms
    spark = progress.spark_ms
    steps = {name: report.times_ms.get(name, 0.0) for name in _DRIVER_STEPS}
    steps["log"] = float(spark.get("walCommit", 0) + spark.get("commitOffsets", 0))
    inner = {name: value for name, value in tasks.items() if value >= 1}
    text = ", ".join(f"{name} {value:.0f}" for name, value in steps.items() if value >= 1)
    detail = ", ".join(f"{name} {value:.0f}" for name, value in inner.items())
    if text:
        yield from ((6, f"; ms: {text}"), (7, f" (tasks: {detail})" if detail else ""))


def _speed(records_per_s: float) -> str:
    return f"{records_per_s:,.0f}/s" if records_per_s >= 10 else f"{records_per_s:.2g}/s"
