"""Chooses what to compact, purely: runs and rules in, a unit or nothing out.

    pick      early full compaction (any of its three options, not for a single run), then
              size amplification  runs >= trigger and 100 * (all but the last) > percent * last      -> everything
              size ratio          runs >= trigger: absorb from the first run on
              run count           runs >  trigger: absorb from the first (runs - trigger + 1) on
    absorb    next run, while gathered * (100 + ratio) / 100 >= its size; two runs at least
    level     that of the first run left out minus 1, the highest if none is; if that were 0, the unit is extended
              through the following level-0 runs up to and including the first other run, and takes its level

    level 0   tables that need lookup, and others on demand: when `pick` finds nothing, all of level 0 with level 1, and
              whatever `absorb` adds; gently (`GentlePatience`) only after a number of picks that found nothing

Two more where larger rounds run in the background of a stream, in tables whose commits compact level 0:

    level 0 alone  the least that empties level 0: its files, with those of level 1 where that is taken, one level below
                   the next run
    upper          the rules above over the runs from level 2 on, once they are 3: what `level 0 alone` never touches

A unit of one file that is already at the output level is nothing to do. Level 0 is never an output, and every unit
holds all of level 0, because it is extended through it, or nothing of levels 0 and 1.

`kept_apart` keeps a compaction from merging a retract with other rows of its key while older rows of the key stay
below: what it takes away from those would be forgotten (`options.retracts`). Files say how many retracts they have.

| unit of the picking rule | becomes |
|---|---|
| all runs; no retract shares keys with other files of it and with files below; tables that need lookup | as it is |
| a -D removes the row, and there is a level free | two runs: the rows, and one level further up the -D before them |
| the same, and there is none | the next run too, and so on |
| retracts are merged with all older rows only | nothing, while the runs are few; then all runs |

A run that has nothing but retracts lies behind the run of what followed them: the picking rule counts them as one
(`joined_runs`), or such pairs would fill the levels.

Source: MERGING.md §3.2, the rules of Paimon 2.0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.merge.sorted_runs import LevelRun, Levels, SortedRun
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.options.retracts import RetractRule

UPPER_LEVEL_MIN: Final = 2
"""Levels from here on are left to the background; those below are the stream's."""

UPPER_RUNS_MIN: Final = 3
"""Runs at these levels from which on they are merged."""


class PickRules(Frozen):
    """The options that steer the choice; None switches a rule off.

    `size_ratio_percent` includes the off-peak addition that is in force now.
    """

    run_count_trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio_percent: int = 1
    optimization_interval_ms: int | None = None
    total_size_threshold_bytes: int | None = None
    incremental_size_threshold_bytes: int | None = None


class CompactionUnit(Frozen):
    """Files to compact together: a compaction unit.

    `is_full`: every run is in it. `rewrite_each`: rewrite file by file, without looking for files that could stay.
    `retract_level`: of keys that have rows after a -D, what is merged up to that goes there (`kept_apart`). `reason` is
    for people.
    """

    output_level: int
    files: tuple[DataFileMeta, ...]
    is_full: bool = False
    rewrite_each: bool = False
    retract_level: int | None = None
    reason: CompactionReason = CompactionReason.FORCED

    @property
    def input_bytes(self) -> int:
        """Bytes of the files, compressed."""
        return sum(file.file_size_bytes for file in self.files)


def pick(
    levels: Levels, rules: PickRules, *, now_ms: int = 0, last_full_ms: int | None = None
) -> CompactionUnit | None:
    """The next unit by the normal rules, or None. `last_full_ms` is when the last full unit was picked."""
    unit = pick_universal(levels.runs, levels.max_level, rules, now_ms=now_ms, last_full_ms=last_full_ms)
    return unit if unit is not None and _is_worth_it(unit) else None


@dataclass(slots=True)
class GentlePatience:
    """`lookup-compact=gentle`: counts the picks of one bucket that found nothing; every `interval`-th is the last.

    It belongs to the bucket, not to a writer of it, and lives as long as the process knows the bucket.
    """

    interval: int
    empty_picks: int = 0

    def is_over(self) -> bool:
        """Counts one more empty pick."""
        self.empty_picks += 1
        if self.empty_picks < self.interval:
            return False
        self.empty_picks = 0
        return True


def pick_force_up_level_0(
    levels: Levels,
    rules: PickRules,
    *,
    now_ms: int = 0,
    last_full_ms: int | None = None,
    is_due: Callable[[], bool] = lambda: True,
    reason: CompactionReason = CompactionReason.LOOKUP,
) -> CompactionUnit | None:
    """Like `pick`; when that finds nothing and it `is_due`, whatever is needed to empty level 0, for this reason."""
    unit = pick_universal(levels.runs, levels.max_level, rules, now_ms=now_ms, last_full_ms=last_full_ms)
    if unit is None and is_due():
        unit = force_level_0(levels.runs, levels.max_level, rules, reason)
    return unit if unit is not None and _is_worth_it(unit) else None


def pick_level_0_alone(levels: Levels, reason: CompactionReason = CompactionReason.LOOKUP) -> CompactionUnit | None:
    """The least that empties level 0; None where it is empty. It reads no file above level 1."""
    count = _runs_with_level_0(levels.runs)
    return unit_of_prefix(levels.runs, levels.max_level, count, reason) if count else None


def pick_upper(levels: Levels, rules: PickRules) -> CompactionUnit | None:
    """The next unit of the runs at level 2 and above; it shares no file with any `pick_level_0_alone` that follows."""
    upper = [run for run in levels.runs if run.level >= UPPER_LEVEL_MIN]
    if len(upper) < UPPER_RUNS_MIN:
        return None
    unit = pick_universal(upper, levels.max_level, replace(rules, run_count_trigger=UPPER_RUNS_MIN))
    if unit is None or not _is_worth_it(unit):
        return None
    return replace(unit, is_full=unit.is_full and len(upper) == len(levels.runs))


def pick_full(
    levels: Levels,
    *,
    force_rewrite: bool = False,
    marked: Collection[str] = frozenset(),
    expired: Collection[str] = frozenset(),
    reason: CompactionReason = CompactionReason.FORCED,
) -> CompactionUnit | None:
    """Everything to the highest level; if it is there already, only files to be rewritten: by name those of which rows
    are `marked` as deleted or have `expired`, or all by force; None if there are none.
    """
    runs = levels.runs
    if not runs:
        return None
    if len(runs) == 1 and runs[0].level == levels.max_level:
        old = {*marked, *expired}
        files = tuple(file for file in runs[0].run.files if force_rewrite or file.file_name in old)
        if not files:
            return None
        if not force_rewrite:
            are_marked = any(file.file_name in marked for file in files)
            reason = CompactionReason.VECTORS if are_marked else CompactionReason.EXPIRY
        return CompactionUnit(levels.max_level, files, is_full=True, rewrite_each=True, reason=reason)
    return _unit_of(runs, levels.max_level, reason, is_full=True)


def pick_universal(
    runs: Sequence[LevelRun], max_level: int, rules: PickRules, *, now_ms: int = 0, last_full_ms: int | None = None
) -> CompactionUnit | None:
    """The rules themselves, before the check whether there is anything to do."""
    early = _early_full(runs, max_level, rules, now_ms, last_full_ms)
    if early is not None:
        return _unit_of(runs, max_level, early, is_full=True)
    if len(runs) >= rules.run_count_trigger:
        if is_size_amplified(runs, rules):
            return _unit_of(runs, max_level, CompactionReason.SIZE_AMPLIFICATION, is_full=True)
        unit = pick_by_size_ratio(runs, max_level, rules, 1)
        if unit is not None:
            return unit
    if len(runs) > rules.run_count_trigger:
        count = len(runs) - rules.run_count_trigger + 1
        return pick_by_size_ratio(runs, max_level, rules, count, CompactionReason.RUN_COUNT)
    return None


def is_size_amplified(runs: Sequence[LevelRun], rules: PickRules) -> bool:
    """True when the newer runs together outweigh the last one by more than the percentage allowed."""
    newer = sum(run.size_bytes for run in runs[:-1])
    return 100 * newer > rules.max_size_amplification_percent * runs[-1].size_bytes


def pick_by_size_ratio(
    runs: Sequence[LevelRun],
    max_level: int,
    rules: PickRules,
    count: int,
    reason: CompactionReason = CompactionReason.SIZE_RATIO,
    *,
    forced: bool = False,
) -> CompactionUnit | None:
    """Absorbs runs of similar size, from the first `count` on; a single run only when forced."""
    gathered = sum(run.size_bytes for run in runs[:count])
    for following in runs[count:]:
        if gathered * (100.0 + rules.size_ratio_percent) / 100.0 < following.size_bytes:
            break
        gathered += following.size_bytes
        count += 1
    return unit_of_prefix(runs, max_level, count, reason) if forced or count > 1 else None


def force_level_0(
    runs: Sequence[LevelRun], max_level: int, rules: PickRules, reason: CompactionReason = CompactionReason.LOOKUP
) -> CompactionUnit | None:
    """All of level 0, with level 1 if it has files; None without level-0 files."""
    count = _runs_with_level_0(runs)
    return pick_by_size_ratio(runs, max_level, rules, count, reason, forced=True) if count else None


def _runs_with_level_0(runs: Sequence[LevelRun]) -> int:
    """Number of runs at level 0, and of that at level 1 with them; 0 without level-0 files."""
    count = sum(1 for run in runs if run.level == 0)
    return count + (0 < count < len(runs) and runs[count].level == 1)


def unit_of_prefix(
    runs: Sequence[LevelRun], max_level: int, count: int, reason: CompactionReason = CompactionReason.RUN_COUNT
) -> CompactionUnit:
    """The unit of the first `count` runs, extended so that its output is never level 0."""
    output = max_level if count == len(runs) else max(0, runs[count].level - 1)
    if output == 0:
        for following in runs[count:]:
            count += 1
            if following.level != 0:
                output = following.level
                break
    if count == len(runs):
        output = max_level
    return _unit_of(runs[:count], output, reason, is_full=count == len(runs))


def off_peak_addition(hour: int, start_hour: int, end_hour: int, ratio_percent: int) -> int:
    """What to add to the size ratio at a local hour; the span wraps midnight, equal ends switch it off."""
    if start_hour == end_hour or start_hour < 0 or end_hour < 0:
        return 0
    if start_hour < end_hour:
        inside = start_hour <= hour < end_hour
    else:
        inside = hour >= start_hour or hour < end_hour
    return ratio_percent if inside else 0


def _early_full(
    runs: Sequence[LevelRun], max_level: int, rules: PickRules, now_ms: int, last_full_ms: int | None
) -> CompactionReason | None:
    """Why everything is compacted before the other rules are asked; None where it is not."""
    if len(runs) <= 1:
        return None
    interval = rules.optimization_interval_ms
    if interval is not None and (last_full_ms is None or now_ms - last_full_ms > interval):
        return CompactionReason.FULL_BY_SCHEDULE
    total = rules.total_size_threshold_bytes
    if total is not None and sum(run.size_bytes for run in runs) < total:
        return CompactionReason.SIZE_THRESHOLD
    incremental = rules.incremental_size_threshold_bytes
    if incremental is not None and sum(run.size_bytes for run in runs if run.level != max_level) > incremental:
        return CompactionReason.SIZE_THRESHOLD
    return None


def _unit_of(runs: Sequence[LevelRun], output_level: int, reason: CompactionReason, *, is_full: bool) -> CompactionUnit:
    files = tuple(file for run in runs for file in run.run.files)
    return CompactionUnit(output_level, files, is_full, reason=reason)


def _is_worth_it(unit: CompactionUnit) -> bool:
    return len(unit.files) > 1 or (len(unit.files) == 1 and unit.files[0].level != unit.output_level)


def kept_apart(
    unit: CompactionUnit | None, levels: Levels, rule: RetractRule | None, *, runs_max: int
) -> CompactionUnit | None:
    """What becomes of a unit of consecutive runs; runs are few up to `runs_max`."""
    if unit is None or rule is None or not rule.needs_older_rows:
        return unit
    taken = {file.file_id for file in unit.files}
    end = 1 + max(at for at, run in enumerate(levels.runs) if run.run.files[0].file_id in taken)
    are_few = len(joined_runs(levels).runs) <= runs_max
    while _folds(unit.files, [file for run in levels.runs[end:] for file in run.run.files], levels):
        if are_few and (rule.alone or _is_mostly_old(unit)):
            return None
        if rule.alone:
            return CompactionUnit(levels.max_level, levels.files, is_full=True, reason=CompactionReason.DELETES_BELOW)
        level = levels.runs[end].level - 1
        if level > 1:
            return replace(unit, output_level=level - 1, retract_level=level)
        files = (*unit.files, *levels.runs[end].run.files)
        end += 1
        output = levels.runs[end].level - 1 if end < len(levels.runs) else levels.max_level
        is_full = len(files) == len(levels.files)
        unit = CompactionUnit(output, files, is_full=is_full, reason=CompactionReason.DELETES_BELOW)
    return unit


def _is_mostly_old(unit: CompactionUnit) -> bool:
    """Whether most bytes were compacted before: pairs of runs fill the levels, and what is new would come on top of
    them with each round."""
    return 2 * sum(file.file_size_bytes for file in unit.files if file.level > 0) > unit.input_bytes


def joined_runs(levels: Levels) -> Levels:
    """The levels, a run that has nothing but retracts as part of the newer run before it."""
    joined: list[LevelRun] = []
    was_joined = True
    for run in levels.runs:
        is_joined = not was_joined and _has_only_retracts(run) and not _has_only_retracts(joined[-1])
        if is_joined:
            newer = joined.pop()
            run = LevelRun(newer.level, SortedRun((*newer.run.files, *run.run.files)))
        joined.append(run)
        was_joined = is_joined
    return replace(levels, runs=tuple(joined))


def _has_only_retracts(run: LevelRun) -> bool:
    return all(file.delete_row_count == file.row_count for file in run.run.files)


def _folds(files: Sequence[DataFileMeta], below: Sequence[DataFileMeta], levels: Levels) -> bool:
    """Whether rows of a key that is below too may be merged here, a retract among them."""
    for file in files:
        if file.is_delete_free:
            continue
        others = [other for other in files if other is not file]
        if _shares_keys(file, others, levels) and _shares_keys(file, below, levels):
            return True
    return False


def _shares_keys(file: DataFileMeta, others: Iterable[DataFileMeta], levels: Levels) -> bool:
    first, last = levels.key_order(file.min_key), levels.key_order(file.max_key)
    return any(
        not (levels.key_order(other.max_key) < first or last < levels.key_order(other.min_key)) for other in others
    )
