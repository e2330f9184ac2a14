"""What became of the records of one task: applied, dead, skipped.

A record may be two rows (a key change), which may lie in two tasks. It is counted where its first row is. Where its
second row alone is dead, the record is a dead letter although the deletion of its old key is written: the task of the
second row takes it from the applied ones, the sums of all tasks are right, and a note says how many they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.outcomes import (
    REASON,
    SUB,
    TAG,
    TAG_QUARANTINED,
    SeenSchema,
    SeenTable,
    Tally,
    TruncatedAt,
)
from freshet.pipeline.query.wire.dead_letter_sample import DeadLetterSample
from freshet.pipeline.query.wire.read_count import record_count

IGNORED: Final = "ignore-delete or ignore-update-before"
"""Why rows of plain frames are skipped; a decoder skips such records before they become rows."""

DROPPED_BY: Final = "dropped by "
"""Begins the reason why records are skipped that break a rule of `expect`."""

HALF_APPLIED: Final = "key change of which only the deletion was applied"
"""Note of records that are dead letters for their new row alone."""


class OutcomeCounts:
    """Counts of one task."""

    def __init__(self) -> None:
        self.applied = 0
        self.restored = 0
        self.dead: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.first_dead = DeadLetterSample()
        self.broken: Counter[str] = Counter()
        """Records that break a rule of `expect`, by its name."""
        self.first_broken: dict[str, DeadLetterSample] = {}
        self.tables: list[SeenTable] = []
        self.seen: list[SeenSchema] = []
        self.truncated: list[TruncatedAt] = []

    def add_tally(self, tally: Tally) -> None:
        """What a decoder counted; its skipped records are no rows."""
        self.skipped.update(tally.skipped)
        self.notes.update(tally.notes)
        self.tables += tally.tables
        self.seen += tally.seen
        self.truncated += tally.truncated

    def add_data(self, rows: pa.Table, *, restored: int) -> None:
        """Rows that go to the writer; `restored` of them got values from the table."""
        self.applied += record_count(rows) if SUB in rows.column_names else rows.num_rows
        self.restored += restored

    def add_counted(self, applied: int, skipped: Mapping[str, int]) -> None:
        """What the stage before has counted."""
        self.applied += applied
        self.skipped.update(skipped)

    def add_ignored(self, count: int) -> None:
        """Rows that the writer did not take, because the table ignores their kind."""
        if count:
            self.applied -= count
            self.skipped[IGNORED] += count

    def add_dead(self, dead: pa.Table) -> None:
        """Dead letters."""
        self.first_dead.add(dead)
        self.dead.update(_counted(dead.column(REASON)))
        halves = dead.num_rows - record_count(dead)
        if halves:
            self.applied -= halves
            self.notes[HALF_APPLIED] += halves

    def add_broken(self, refused: pa.Table) -> None:
        """Outcomes of records that break a rule; those that are dead letters are counted as such besides."""
        self.broken.update(_counted(refused.column(REASON)))
        for name in set(refused.column(REASON).unique().to_pylist()):
            sample = self.first_broken.setdefault(name, DeadLetterSample())
            sample.add(refused.filter(pc.equal(refused.column(REASON), name)))
        others = refused.filter(pc.not_equal(refused.column(TAG), TAG_QUARANTINED))
        self.skipped.update({DROPPED_BY + name: count for name, count in _counted(others.column(REASON)).items()})

    @property
    def record_count(self) -> int:
        """Records that were to be rows."""
        return (
            self.applied
            + sum(self.dead.values())
            + sum(count for reason, count in self.skipped.items() if reason.startswith(DROPPED_BY))
        )


def _counted(reasons: Any) -> Mapping[str, int]:
    counted: Any = pc.value_counts(pc.fill_null(reasons, "unknown"))
    return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}
