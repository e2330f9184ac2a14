"""Keeps a compaction from merging a retract with other rows of its key while older rows of the key stay below: what it
takes away from those would be forgotten (`options.retracts`). Pure: files say how many retracts they have.

| unit of the picking rule | becomes |
|---|---|
| all runs; no retract shares keys with other files of it and with files below; tables that need lookup | as it is |
| a -D removes the row, and there is a level free | two runs: the rows, and one level further up the -D before them |
| the same, and there is none | the next run too, and so on |
| retracts are merged with all older rows only | nothing, while the runs are few; then all runs |

A run that has nothing but retracts lies behind the run of what followed them: the picking rule counts them as one
(`joined_runs`), or such pairs would fill the levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.merge.sorted_runs import LevelRun, Levels, SortedRun
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.options.retracts import RetractRule


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
            return CompactionUnit(levels.max_level, levels.files, is_full=True)
        level = levels.runs[end].level - 1
        if level > 1:
            return replace(unit, output_level=level - 1, retract_level=level)
        files = (*unit.files, *levels.runs[end].run.files)
        end += 1
        output = levels.runs[end].level - 1 if end < len(levels.runs) else levels.max_level
        unit = CompactionUnit(output, files, is_full=len(files) == len(levels.files))
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
