"""What the options of a table ask to be compacted in one bucket, from its files alone.

| | due (after a flush, or `compact` without full) | full |
|---|---|---|
| primary key | `picker.pick`, with lookup or on demand also level 0; then `kept_apart` | `picker.pick_full` |
| append, buckets | `append_compaction.pick_window` | `append_compaction.pick_full_bucket` |
| append, no buckets | `append_compaction.pick_bins` of `compaction.min.file-num` files | `pick_bins` of two files |

Source: MERGING.md §3.2, §8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from freshet.storage.compact.append_compaction import AppendRules, pick_bins, pick_full_bucket, pick_window
from freshet.storage.compact.picker import (
    CompactionUnit,
    PickRules,
    joined_runs,
    kept_apart,
    off_peak_addition,
    pick,
    pick_force_up_level_0,
    pick_full,
)
from freshet.storage.merge.sorted_runs import Levels
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.retracts import RetractRule

_HOUR_MS: Final = 3_600_000


def plan_full(
    levels: Levels,
    options: CoreOptions,
    *,
    marked: Collection[str] = frozenset(),
    expired: Collection[str] = frozenset(),
    reason: CompactionReason = CompactionReason.FORCED,
) -> CompactionUnit | None:
    """Everything to the highest level; of files there, by name, those of which deletion vectors mark rows, or some have
    expired."""
    force = options.compaction_force_rewrite_all_files
    return pick_full(levels, force_rewrite=force, marked=marked, expired=expired, reason=reason)


def level_0_reason(options: CoreOptions) -> CompactionReason:
    """Why level 0 is compacted although no rule asks for it."""
    if options.deletion_vectors_enabled:
        return CompactionReason.VECTORS
    return CompactionReason.LOOKUP if options.needs_lookup else CompactionReason.FORCED


def plan_due(
    levels: Levels,
    options: CoreOptions,
    *,
    takes_level_0: bool,
    now_ms: int,
    last_full_ms: int | None,
    is_due: Callable[[], bool] = lambda: True,
    retracts: RetractRule | None = None,
) -> CompactionUnit | None:
    """What the picking rule asks for; `takes_level_0`, if it `is_due`: level 0 when nothing else.

    `now_ms` is local time, as in the creation times of files. `retracts` is the rule of the table for them.
    """
    rules = pick_rules(options, now_ms)
    # What needs lookup merges keys of level 0 with the whole row that is stored.
    rule = None if options.needs_lookup else retracts
    runs = levels if rule is None else joined_runs(levels)
    if takes_level_0 or options.compaction_force_up_level_0:
        reason = level_0_reason(options)
        unit = pick_force_up_level_0(
            runs, rules, now_ms=now_ms, last_full_ms=last_full_ms, is_due=is_due, reason=reason
        )
    else:
        unit = pick(runs, rules, now_ms=now_ms, last_full_ms=last_full_ms)
    return kept_apart(unit, levels, rule, runs_max=options.stop_trigger)


def plan_append(
    files: Sequence[DataFileMeta],
    options: CoreOptions,
    *,
    has_buckets: bool,
    full: bool,
    marked: Collection[str] = frozenset(),
) -> list[tuple[DataFileMeta, ...]]:
    """Files of an append table to join, each unit apart; in full also those of which rows are `marked` as deleted."""
    rules, force_rewrite = append_rules(options), full and options.compaction_force_rewrite_all_files
    if not has_buckets:
        taken = {file.file_name for file in files} if force_rewrite else marked
        return pick_bins(files, rules, full=full, marked=taken)
    if full:
        unit = pick_full_bucket(files, rules, force_rewrite=force_rewrite, marked=marked)
    else:
        unit = pick_window(files, rules)
    return [unit] if unit else []


def last_full_ms(levels: Levels) -> int | None:
    """When the bucket was last compacted in full, as far as its files say."""
    times = [file.creation_time_ms for file in levels.files if file.level == levels.max_level]
    return max((at for at in times if at is not None), default=None)


def append_rules(options: CoreOptions) -> AppendRules:
    """The picking rules of append tables that the options ask for."""
    return AppendRules(
        target_bytes=options.target_file_size_bytes,
        small_file_bytes=options.compaction_file_size_bytes,
        open_file_cost_bytes=options.split_open_file_cost_bytes,
        min_file_count=options.compaction_min_file_num,
    )


def pick_rules(options: CoreOptions, now_ms: int) -> PickRules:
    """The picking rules that the options ask for at this hour of the day, in local time."""
    off_peak = off_peak_addition(
        now_ms // _HOUR_MS % 24,
        options.compaction_offpeak_start_hour,
        options.compaction_offpeak_end_hour,
        options.compaction_offpeak_ratio,
    )
    return PickRules(
        run_count_trigger=options.compaction_trigger,
        max_size_amplification_percent=options.compaction_max_size_amplification_percent,
        size_ratio_percent=options.compaction_size_ratio + off_peak,
        optimization_interval_ms=options.compaction_optimization_interval_ms,
        total_size_threshold_bytes=options.compaction_total_size_threshold_bytes,
        incremental_size_threshold_bytes=options.compaction_incremental_size_threshold_bytes,
    )
