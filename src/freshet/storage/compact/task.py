"""Plans one compaction unit, purely: which files only change their level, which are merged together, which stay.

    section with several runs        merged with its neighbours that are to be merged
    file alone in its key range
      smaller than small_file_bytes  merged with its neighbours; alone after all: moved
      otherwise                      moved, and it ends the group before it
    moved                            to the highest level with retracts (or an unknown number): rewritten instead;
                                     or rows that have expired: rewritten in any case; at the output level already:
                                     untouched; otherwise only its level changes

Groups keep key order, so that the output of a group is one sorted stream.

Source: MERGING.md §3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.merge.sorted_runs import SortedRun
from freshet.storage.model.data_file import DataFileMeta

Section = Sequence[SortedRun]


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """`moves` change only their level; each of `rewrites` is a list of sections merged into one sorted output."""

    output_level: int
    moves: tuple[DataFileMeta, ...]
    rewrites: tuple[tuple[Section, ...], ...]

    @property
    def moved(self) -> tuple[DataFileMeta, ...]:
        """The moved files at their new level."""
        return tuple(replace(file, level=self.output_level) for file in self.moves)


def plan_task(
    unit: CompactionUnit,
    sections: Sequence[Section],
    *,
    max_level: int,
    small_file_bytes: int,
    force_rewrite: bool = False,
    rewrites_moves: Callable[[DataFileMeta], bool] = lambda _: False,
    has_expired: Callable[[DataFileMeta], bool] = lambda _: False,
) -> CompactionPlan:
    """Plans the unit, whose files were cut into `sections` (`merge.sorted_runs`).

    `rewrites_moves` says of a file that would only change its level that it must be rewritten after all,
    `has_expired` that it has rows to be left out, at whatever level.
    """
    planner = _Planner(unit.output_level, max_level, force_rewrite, rewrites_moves, has_expired)
    if unit.rewrite_each:
        for file in unit.files:
            planner.rewrites.append((_alone(file),))
        return planner.plan()
    pending: list[Section] = []
    for section in sections:
        if len(section) > 1:
            pending.append(section)
            continue
        for file in section[0].files:
            if file.file_size_bytes < small_file_bytes:
                pending.append(_alone(file))
            else:
                planner.flush(pending)
                planner.move(file)
    planner.flush(pending)
    return planner.plan()


@dataclass(slots=True)
class _Planner:
    output_level: int
    max_level: int
    force_rewrite: bool
    rewrites_moves: Callable[[DataFileMeta], bool]
    has_expired: Callable[[DataFileMeta], bool]
    moves: list[DataFileMeta] = field(default_factory=list)
    rewrites: list[tuple[Section, ...]] = field(default_factory=list)

    def flush(self, pending: list[Section]) -> None:
        if len(pending) == 1 and len(pending[0]) == 1:
            for file in pending[0][0].files:
                self.move(file)
        elif pending:
            self.rewrites.append(tuple(pending))
        pending.clear()

    def move(self, file: DataFileMeta) -> None:
        drops_retracts = self.output_level == self.max_level and not file.is_delete_free
        changes_level = file.level != self.output_level
        must_rewrite = self.force_rewrite or drops_retracts or self.has_expired(file)
        if must_rewrite or (changes_level and self.rewrites_moves(file)):
            self.rewrites.append((_alone(file),))
        elif changes_level:
            self.moves.append(file)

    def plan(self) -> CompactionPlan:
        return CompactionPlan(self.output_level, tuple(self.moves), tuple(self.rewrites))


def _alone(file: DataFileMeta) -> Section:
    return (SortedRun((file,)),)
