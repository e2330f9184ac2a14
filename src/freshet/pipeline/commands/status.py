"""The command `status`: pipelines and tables at a moment, from their files alone; one screen for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from freshet.pipeline.commands.arguments import (
    AsJson,
    CatalogOption,
    Places,
    complain_of_none,
    files_or_warehouse,
    open_catalog,
    refuse_none,
)
from freshet.pipeline.commands.output import print_json, say
from freshet.pipeline.running.seen import Seen
from freshet.storage.model.display import one_line, plural, printable, rfc3339, shortened, size_text

if TYPE_CHECKING:
    from freshet.pipeline.running.pipeline_status import PipelineStatus
    from freshet.storage.status.table_status import TableStatus


EXIT_BEHIND: Final = 3
"""Something is behind its target."""
_MOMENTS: Final = frozenset(
    {"observed_ms", "time_ms", "since_ms", "earliest_ms", "last_ms", "started_ms", "batch_done_ms", "last_event_ms"}
)


def status(
    places: Places,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks of --watch.")] = 5.0,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Show how pipelines and tables are: fresh or behind, and why. Reads files alone, so it works where nothing runs.

    Exit code 3 where a table cannot be read or is less fresh than its option freshet.freshness-target, or a pipeline
    has failed, is gone or has set tables apart; else 0. With --watch and --json each look is a document.
    """
    look = look_of(places, catalog_option)
    if watch:
        _watch(look, every, as_json=as_json)
        return
    seen = look()
    if as_json:
        print_json(document_of(seen))
    else:
        say(_text(seen))
    if seen.is_behind:
        raise typer.Exit(EXIT_BEHIND)


def look_of(
    places: Sequence[str], catalog_option: Sequence[str] | None, *, detailed: int = 0, may_wait: bool = False
) -> Callable[[], Seen]:
    """Looks at the pipelines of files, at a table, or at those of a warehouse: at a glance, but for the first
    `detailed`. Whoever `may_wait` looks at a warehouse before it has a table."""
    files, warehouse, table = files_or_warehouse(places, "status")
    if files:
        from freshet.pipeline.config.pipeline_file import load_pipelines
        from freshet.pipeline.running.pipeline_status import pipeline_statuses

        configs = load_pipelines(files)
        return lambda: Seen(pipelines=pipeline_statuses(configs))
    catalog = open_catalog(warehouse, catalog_option)
    if table is not None:
        return lambda: Seen(tables=[catalog.table(table).status()])
    (complain_of_none if may_wait else refuse_none)(catalog)
    return lambda: Seen(tables=catalog.status(detailed=detailed), warehouse=catalog.warehouse)


def _text(seen: Seen) -> str:
    if seen.pipelines:
        return "\n\n".join(pipeline_text(each) for each in seen.pipelines)
    return table_text(seen.tables[0]) if seen.warehouse is None else table_lines(seen.tables, seen.warehouse)


def document_of(seen: Seen) -> dict[str, Any]:
    """The same for programs."""
    pipelines, tables = [each.facts() for each in seen.pipelines], [each.facts() for each in seen.tables]
    return {"pipelines": _with_times(pipelines), "tables": _with_times(tables)}


def _with_times(value: Any) -> Any:
    """Moments as programs read them: `observed_ms` is `observed`; spans stay milliseconds."""
    if isinstance(value, dict):
        moments = {key: rfc3339(each) for key, each in value.items() if key in _MOMENTS}
        return {
            key.removesuffix("_ms") if key in moments else key: moments[key] if key in moments else _with_times(each)
            for key, each in value.items()
        }
    return [_with_times(each) for each in value] if isinstance(value, list | tuple) else value


def _watch(look: Callable[[], Seen], every_s: float, *, as_json: bool) -> None:
    if as_json:
        while True:
            print_json(document_of(look()))
            time.sleep(every_s)
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            live.update(Text(_text(look())), refresh=True)
            time.sleep(every_s)


HOUR_MS = 3_600_000
PHASES_SHOWN = 3
ROWS_SHOWN = 40
"""Tables of a warehouse that are listed, the worst first."""
NAME_WIDTH = 40
ERROR_SHOWN = 160
"""Characters of why one of many tables cannot be read."""


def span_text(ms: float | None) -> str:
    """A span of time, in its largest unit: `340 ms`, `12 s`, `3.5 min`, `2 h`, `4 d`."""
    if ms is None:
        return "-"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= 2 * size or (unit == "s" and ms >= size):
            return f"{ms / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms:.0f} ms"


def _fresh(status: TableStatus) -> str:
    age = "no rows yet" if status.freshness_ms is None else f"{span_text(status.freshness_ms)} old"
    target = "" if status.target_ms is None else f", target {span_text(status.target_ms)}"
    return f"{'BEHIND: ' if status.is_behind else ''}{age}{target}"


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else size_text(size_bytes)


def _at_a_glance(status: TableStatus) -> str:
    if status.error is not None:
        return f"CANNOT BE READ: {shortened(one_line(status.error), ERROR_SHOWN)}"
    return f"{_fresh(status)}; {plural(status.rows or 0, 'row')}, {_size(status.live_bytes)}"


def table_lines(found: Sequence[TableStatus], place: str) -> str:
    """The tables of a warehouse, a line each."""
    behind = sum(each.is_behind for each in found)
    lines = [f"{place}: {plural(len(found), 'table')}, {behind} behind"]
    shown = found[: max(ROWS_SHOWN, behind)]
    width = min(NAME_WIDTH, max((len(printable(each.name)) for each in shown), default=0))
    lines += [f"  {printable(each.name):<{width}}  {_at_a_glance(each)}" for each in shown]
    if len(found) > len(shown):
        lines.append(f"  and {len(found) - len(shown):,} more, all in time; --json has them")
    return "\n".join(lines)


def table_text(status: TableStatus) -> str:
    """One table on a screen."""
    return "\n".join(_table(status))


def _table(status: TableStatus) -> Iterator[str]:
    yield f"{printable(status.name)}: {_fresh(status)}"
    newest = status.newest
    if newest is not None:
        age = span_text(status.observed_ms - newest.time_ms)
        yield f"  newest commit   {newest.kind} {newest.snapshot_id} by {printable(newest.commit_user)}, {age} ago"
    files = "" if status.files is None else f" in {plural(status.files, 'file')}"
    yield f"  rows            {status.rows or 0:,}, {_size(status.live_bytes)}{files}"
    detail = status.detail
    if detail is None:
        return
    levels, hour, history = detail.levels, detail.hour, detail.history
    stop = "" if levels.runs_stop is None else f", waits at {levels.runs_stop}"
    yield (
        f"  levels          {plural(levels.level_0_max, 'file')} at level 0, {plural(levels.runs_max, 'run')} at most "
        f"in {plural(levels.buckets, 'bucket')} (compacts at {levels.runs_trigger}{stop})"
    )
    minutes = "" if levels.backlog_minutes is None else f", {levels.backlog_minutes:g} min at the last hour's rate"
    backlog = f"{size_text(levels.backlog_bytes)} in {plural(levels.backlog_buckets, 'bucket')}{minutes}"
    yield f"  to compact      {backlog if levels.backlog_buckets else 'nothing'}"
    if detail.changelog_behind is not None:
        behind = f"{plural(detail.changelog_behind, 'commit')} behind, {plural(levels.waiting_rows, 'row')} waiting"
        yield f"  changelog       {behind}"
    label = "last hour" if hour.span_ms >= HOUR_MS else f"last {span_text(hour.span_ms)}"
    yield (
        f"  {label:<15} {plural(hour.commits, 'commit')}, {plural(hour.rows_written, 'row')}, commit p50 "
        f"{span_text(hour.commit_ms_p50)}, p99 {span_text(hour.commit_ms_p99)}, {plural(hour.conflicts, 'conflict')}"
    )
    if hour.compactions:
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in hour.reasons.items())
        yield f"  compactions     {reasons}; {size_text(hour.compacted_bytes)} read in {span_text(hour.compaction_ms)}"
    oldest = (
        "" if history.earliest_ms is None else f", the oldest {span_text(status.observed_ms - history.earliest_ms)} old"
    )
    kept = "" if history.kept_bytes is None else f", which keep {size_text(history.kept_bytes)}"
    yield f"  snapshots       {history.snapshots:,}{oldest}{kept}"
    for hold in detail.holds:
        at = "" if hold.snapshot_id is None else f" at snapshot {hold.snapshot_id}"
        age = "" if hold.since_ms is None else f", for {span_text(status.observed_ms - hold.since_ms)}"
        keeps = "" if hold.kept_bytes is None else f", keeps {size_text(hold.kept_bytes)}"
        yield f"  held by         {hold.kind} {printable(hold.name)}{at}{age}{keeps}"
    if detail.log is not None:
        offsets = ", ".join(f"{each}: {offset:,}" for each, offset in detail.log.offsets.items())
        yield f"  log             topic {printable(detail.log.topic)} up to batch {detail.log.batch} ({offsets})"


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"


def pipeline_text(status: PipelineStatus) -> str:
    """One pipeline on a screen, with its tables."""
    return "\n".join(_pipeline(status))


def _pipeline(status: PipelineStatus) -> Iterator[str]:
    run, batches = status.run, status.batches
    if status.error is not None:
        yield f"{printable(status.name)}: CANNOT BE READ: {one_line(status.error)}"
        return
    said = "" if run is None else f", said {span_text(status.observed_ms - run.time_ms)} ago on {printable(run.host)}"
    batch = "no batch yet" if status.batch is None else f"batch {status.batch}"
    yield f"{printable(status.name)}: {'BEHIND: ' if status.is_behind else ''}{status.state}{said}; {batch}"
    if run is None and status.batch is None:
        yield "  checkpoint      nothing has run from it; a relative path begins at the current folder"
    if status.lag_records is not None:
        when = "" if status.state.is_up else " when it was last heard of"
        lag = "" if status.lag_ms is None else f", {span_text(status.lag_ms)}"
        yield f"  source          {plural(status.lag_records, 'record')} behind{when}{lag}"
    if batches.batches:
        speed = "" if batches.records_per_s is None else f", {batches.records_per_s:,.0f} records/s"
        yield f"  last 15 min     {_batches(batches.batches)}: {plural(batches.records, 'record')}{speed}"
        if batches.event_to_commit_ms_p50 is not None:
            p50, p99 = span_text(batches.event_to_commit_ms_p50), span_text(batches.event_to_commit_ms_p99)
            yield f"  event → commit  p50 {p50}, p99 {p99}"
        phases = list(batches.phases_ms.items())[:PHASES_SHOWN]
        if phases:
            yield f"  a batch         {', '.join(f'{name} {ms:,} ms' for name, ms in phases)}"
    for cause, count in batches.dead_letters.items():
        yield f"  dead letters    {count:,} × {printable(cause)} in the last hour"
    for rule, count in batches.broken_rules.items():
        if rule not in batches.dead_letters:
            yield f"  broken rules    {count:,} × {printable(rule)} in the last hour"
    if run is not None and run.unknown_fields:
        fields = ", ".join(f"{printable(name)} ({count:,})" for name, count in run.unknown_fields.items())
        yield f"  left out        fields that the table does not have: {fields}"
    for name, cause in status.apart.items():
        yield f"  SET APART       {printable(name)}: {one_line(cause)}"
    if status.last_error is not None:
        yield f"  last error      {one_line(status.last_error)}"
    for table in status.tables:
        if table.detail is None:
            yield f"  {printable(table.name)}: {_at_a_glance(table)}"
        else:
            yield from (f"  {line}" for line in _table(table))
