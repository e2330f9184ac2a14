"""What a table of each merge engine must hold after a schedule of commits and full compactions.

Results of merging depend on where it happens: a key with one record is not merged at all (the lone-record rule), and
some functions give something else when they are applied in stages. So the oracle keeps what a table keeps, sorted runs
of at most one record per key, and merges where a table merges, row by row:

    write      rows wait in the buffer
    commit     the buffer becomes a run: one record per key (nothing for a key whose records merge to nothing); several
               runs by Freshet, where what follows a retract is kept apart from it (`engine_layers`)
               tables that need lookup merge it into level 1 at once, where no record passes unmerged
    compact    all runs become one, retracts are dropped
    rows       all runs merged, retracts dropped (first-row: what is compacted)

One bucket, automatic compaction off; tables that need lookup have two levels.

    oracle = EngineOracle({"k": "INT NOT NULL", "v": "INT"}, ["k"], {"merge-engine": "aggregation", ...})
    oracle.write([{"k": 1, "v": 5}, {"k": 1, "v": 7, "_ROW_KIND": "-U"}])
    oracle.commit()
    oracle.rows()

Source: MERGING.md §0, §1.1, §2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.kit.aggregate_oracles import CannotMerge
from tests.kit.engine_layers import LAYERS_MAX, blanked, layers
from tests.kit.engine_merges import KIND_COLUMN, KINDS, Engine, Record, Values
from tests.kit.oracle import RETRACTS, UPDATE_BEFORE, exact_key


@dataclass
class Run:
    """At most one record per key."""

    level: int
    records: dict[Any, Record]


@dataclass
class EngineOracle:
    """A table of one bucket."""

    columns: Mapping[str, str]
    primary_keys: Sequence[str]
    options: Mapping[str, str]
    buffer: dict[Any, list[Record]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    accepted: int = 0
    by_paimon: bool = False
    """Who writes."""

    @property
    def engine(self) -> Engine:
        return Engine(self.columns, self.primary_keys, self.options)

    def write(self, rows: Sequence[Values]) -> int:
        """Takes rows (columns that lack are NULL); returns how many of them count."""
        before = self.accepted
        for row in rows:
            kind = KINDS.index(row.get(KIND_COLUMN, "+I"))
            if kind in RETRACTS and self.engine.ignores_deletes:
                continue
            if kind == UPDATE_BEFORE and self.options.get("ignore-update-before") == "true":
                continue
            values = {column: row.get(column) for column in self.columns}
            self.buffer.setdefault(self._key(values), []).append(Record(values, kind, self.accepted))
            self.accepted += 1
        return self.accepted - before

    def commit(self) -> None:
        """Flushes; tables that need lookup compact."""
        self.runs += self._flushed()
        self.buffer = {}
        if self.engine.needs_lookup and self.runs and self.runs[-1].level == 0:
            self._lookup_compact()

    def _flushed(self) -> list[Run]:
        """What becomes of the buffer, the oldest run first; the newest has the last records of every key."""
        found: list[dict[Any, Record]] = [{} for _ in range(LAYERS_MAX)]
        for key, records in self.buffer.items():
            own = sorted(records, key=self.engine.rank)
            parts = [own] if self.by_paimon else layers(self.engine, [blanked(self.engine, each) for each in own])
            for depth, part in enumerate(reversed(parts)):
                merged = self._merge(part)
                if merged is not None:
                    found[depth][key] = merged
        return [Run(0, records) for records in reversed(found) if records]

    def compact(self) -> None:
        """A full compaction."""
        if self.runs and not (len(self.runs) == 1 and self.runs[0].level):
            self.runs = _not_empty(Run(1, self._merged(self.runs)))

    def rows(self) -> dict[Any, Values]:
        """What a reader sees, by key."""
        visible = [run for run in self.runs if run.level or self.engine.name != "first-row"]
        return {key: record.values for key, record in self._merged(visible).items()}

    def mergeable(self, rows: Sequence[Values]) -> list[Values]:
        """The rows without those of keys that could not be merged, now at the flush or later with what is there."""
        keys = [self._key(row) for row in rows]
        by_key: dict[Any, list[Values]] = {}
        for key, row in zip(keys, rows, strict=True):
            by_key.setdefault(key, []).append(row)
        refused = {key for key, own in by_key.items() if not self._is_mergeable(key, own)}
        return [row for key, row in zip(keys, rows, strict=True) if key not in refused]

    def _is_mergeable(self, key: Any, rows: Sequence[Values]) -> bool:
        trial = replace(self, buffer={}, runs=[])
        trial.runs = [Run(run.level, {key: run.records[key]}) for run in self.runs if key in run.records]
        try:
            trial.write(rows)
            trial.commit()
            trial.rows()
        except CannotMerge:
            return False
        return True

    def _key(self, row: Values) -> Any:
        return exact_key(tuple(row[column] for column in self.primary_keys))

    def _merge(self, records: Sequence[Record]) -> Record | None:
        ordered = sorted(records, key=self.engine.rank)
        return ordered[0] if len(ordered) == 1 else self.engine.merge(ordered)

    def _merged(self, runs: Sequence[Run]) -> dict[Any, Record]:
        return _without_retracts({key: self._merge(records) for key, records in _by_key(runs).items()})

    def _lookup_compact(self) -> None:
        """Level 0 into level 1; a single file without retracts is moved there as it is, unless changes are emitted."""
        emits = self.options.get("changelog-producer") == "lookup" and self.engine.name in (
            "partial-update",
            "aggregation",
        )
        if (
            not emits
            and len(self.runs) == 1
            and not any(record.kind in RETRACTS for record in self.runs[0].records.values())
        ):
            self.runs[0].level = 1
            return
        merged = {
            key: self.engine.merge(sorted(records, key=self.engine.rank)) for key, records in _by_key(self.runs).items()
        }
        current = _without_retracts(merged)
        if emits:  # what is emitted must not change when it is merged again
            current = _without_retracts({key: self.engine.merge([record]) for key, record in current.items()})
        self.runs = _not_empty(Run(1, current))


def _by_key(runs: Sequence[Run]) -> dict[Any, list[Record]]:
    found: dict[Any, list[Record]] = {}
    for run in runs:
        for key, record in run.records.items():
            found.setdefault(key, []).append(record)
    return found


def _without_retracts(records: Mapping[Any, Record | None]) -> dict[Any, Record]:
    return {key: record for key, record in records.items() if record is not None and record.kind not in RETRACTS}


def _not_empty(run: Run) -> list[Run]:
    return [run] if run.records else []
