"""Is a table what its commits say, in the order of their snapshots? Rows, changelog, levels and commits of two writers.

    verdict = Verdict(table, STORIES["sum"], seed=1, users=["writer-0", "writer-1"])
    verdict.check_commits(journals); verdict.check_history(chance); …
    verdict.faults                              texts; empty when all is well

The order of the APPEND snapshots is the order of the commits: the last commit wins. What a reader sees may lag behind
it in two kinds of tables only, as long as there are files at level 0: rows of first-row and of deletion vectors, and
changelogs of lookup and full-compaction. Of these, states are compared at snapshots with nothing left to compact.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.table import Table
from tests.soak.busy_process import Journal
from tests.soak.writer_stories import CurrentRows, Row, Story

SHOWN = 3
"""Examples of each fault."""

Rows = Mapping[int, Row]


@dataclass(frozen=True)
class Commit:
    """A commit in the table: who made it visible, with which identifier, in which snapshot."""

    snapshot_id: int
    writer: int
    number: int


@dataclass
class Verdict:
    """Compares a table with its commits; faults are collected, since one may explain another."""

    table: Table
    story: Story
    seed: int
    users: Sequence[str]
    rows_of: Sequence[int | None]
    """Rows of the batches of each user; None for the usual few."""
    faults: list[str] = field(default_factory=list)
    compared: Counter[str] = field(default_factory=Counter)
    """How many states were compared, by what was compared."""

    @property
    def lags(self) -> bool:
        """Whether rows at level 0 are not seen."""
        return self.story.name == "first-row" or self.table.options.deletion_vectors_enabled

    @cached_property
    def snapshots(self) -> list[Snapshot]:
        return self.table.snapshots()

    @cached_property
    def commits(self) -> list[Commit]:
        """Those of the writers, in the order of their snapshots."""
        return [
            Commit(snapshot.id, self.users.index(snapshot.commit_user), snapshot.commit_identifier)
            for snapshot in self.snapshots
            if snapshot.commit_kind is not CommitKind.COMPACT and snapshot.commit_user in self.users
        ]

    def look_again(self) -> None:
        """To be called after another user has committed."""
        for name in ("snapshots", "commits"):
            vars(self).pop(name, None)

    def states(self, snapshot_ids: Iterable[int]) -> dict[int, Rows]:
        """The expected rows of each of these snapshots."""
        current, waiting = CurrentRows(self.story), list(self.commits)
        found: dict[int, Rows] = {}
        for snapshot_id in sorted(snapshot_ids):
            while waiting and waiting[0].snapshot_id <= snapshot_id:
                commit = waiting.pop(0)
                rows = self.rows_of[commit.writer]
                current.apply(self.story.batch(self.seed, commit.writer, commit.number, rows))
            found[snapshot_id] = current.visible()
        return found

    def check_commits(self, journals: Sequence[Journal]) -> None:
        """Every commit that returned is there once, nothing else is, and each writer's come in their order."""
        ids = [snapshot.id for snapshot in self.snapshots]
        if ids != list(range(1, len(ids) + 1)):
            self._add("snapshots are missing", [f"{left} is followed by {right}" for left, right in pairwise(ids)])
        for writer, journal in enumerate(journals):
            numbers = [commit.number for commit in self.commits if commit.writer == writer]
            done, begun = journal.of("done"), journal.of("begin")
            if numbers != list(range(len(numbers))):
                self._add(f"commits of {self.users[writer]} are doubled, left out or in disorder", [str(numbers)])
            if gone := sorted(set(done) - set(numbers)):
                self._add(f"commits of {self.users[writer]} that had returned are not there", map(str, gone))
            if foreign := sorted(set(numbers) - set(begun)):
                self._add(f"commits of {self.users[writer]} that it never began", map(str, foreign))
            wrong = [
                f"{entry['done']} as {entry['identifier']}"
                for entry in journal.entries()
                if entry.get("identifier") not in (None, entry.get("done"))
            ]
            if wrong:
                self._add(f"commits of {self.users[writer]} have other identifiers", wrong)
            if errors := journal.of("error"):
                self._add(f"calls of {self.users[writer]} failed", errors)

    def check_rows(self, what: str) -> None:
        """The latest rows, and the levels of the latest files."""
        latest = self.table.latest_snapshot()
        if latest is None:
            self.faults.append(f"{what}: nothing was committed")
            return
        files = self.table.files()
        self._check_levels(what, files)
        if self.lags and has_level_0(files):
            what += " (with files at level 0, which are not seen)"
        self._compare(what, self.states([latest.id])[latest.id], self._scanned(latest.id, what))

    def check_history(self, chance: random.Random, samples: int) -> None:
        """Rows and levels at some of the snapshots, a part of them by each user."""
        faults, self.faults = self.faults, []
        states = self.states(self._sampled(chance, samples))
        for snapshot_id, expected in states.items():
            what = f"rows at snapshot {snapshot_id}"
            files = self.table.files(snapshot_id=snapshot_id)
            self._check_levels(what, files)
            found = self._scanned(snapshot_id, what)
            if not (self.lags and has_level_0(files)):
                self._compare(what, expected, found)
        self.faults = faults + summed_up(f"looking at {len(states)} snapshots", self.faults)

    def check_changelog(self, chance: random.Random, samples: int) -> None:
        """Each change has the row before; folded, they give the rows of each snapshot whose changes are all emitted."""
        if self.table.options.changelog_producer.value not in ("lookup", "full-compaction"):
            return
        expected = {
            snapshot_id: state
            for snapshot_id, state in self.states(self._sampled(chance, samples)).items()
            if self._has_emitted_all(self.table.files(snapshot_id=snapshot_id))
        }
        faults, self.faults = self.faults, []
        fold = Fold(self.story)
        waiting = sorted(expected)
        for change in self.table.changelog().to_arrow().to_pylist():
            while waiting and waiting[0] < change["_SNAPSHOT_ID"]:
                self._compare(f"changelog up to snapshot {waiting[0]}", expected[waiting.pop(0)], fold.rows)
            fold.take(change)
        for snapshot_id in waiting:
            self._compare(f"changelog up to snapshot {snapshot_id}", expected[snapshot_id], fold.rows)
        self.faults = faults + summed_up(f"folding up to {len(expected)} snapshots", self.faults)
        fold.end()
        if fold.faults:
            self._add("changes that do not fit on the row before", fold.faults)

    def _sampled(self, chance: random.Random, samples: int) -> list[int]:
        """Snapshot ids: a part from those of each user and kind, so that slow writers are among them, and the last."""
        groups: dict[tuple[str, CommitKind], list[int]] = defaultdict(list)
        for snapshot in self.snapshots:
            groups[snapshot.commit_user, snapshot.commit_kind].append(snapshot.id)
        each = max(1, samples // max(1, len(groups)))
        chosen = {number for ids in groups.values() for number in chance.sample(ids, min(each, len(ids)))}
        return sorted(chosen | {self.snapshots[-1].id} if self.snapshots else chosen)

    def _has_emitted_all(self, files: Sequence[ManifestEntry]) -> bool:
        """Whether the changelog has come as far as the rows."""
        if self.table.options.changelog_producer.value == "lookup":
            return not has_level_0(files)
        return {entry.file.level for entry in files} <= {self.table.options.num_levels - 1}

    def _scanned(self, snapshot_id: int, what: str) -> Rows:
        """The rows that a reader gets; a key that comes twice is a fault."""
        rows = self.table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        twice = [f"key {key} {count} times" for key, count in Counter(row["k"] for row in rows).items() if count > 1]
        if twice:
            self._add(f"{what}: keys that come more than once", twice)
        return {row["k"]: values_of(self.story, row) for row in rows}

    def _check_levels(self, what: str, files: Iterable[ManifestEntry]) -> None:
        if found := overlaps(files):
            self._add(f"{what}: files of one level overlap", found)

    def _compare(self, what: str, expected: Rows, found: Rows) -> None:
        self.compared[what.split(" ")[0]] += 1
        wrong = [
            f"key {key} is {found.get(key)}, must be {expected.get(key)}"
            for key in sorted(expected.keys() | found.keys())
            if expected.get(key) != found.get(key)
        ]
        if wrong:
            counts = ", ".join(f"{name} {count}" for name, count in self._counts(expected, found).items() if count)
            self._add(f"{what}: {len(wrong)} of {len(expected)} keys are wrong ({counts})", wrong)

    def _counts(self, expected: Rows, found: Rows) -> dict[str, int]:
        """In how many rows each column is wrong, and how many rows are not there or too many."""
        both = [(row, found[key]) for key, row in expected.items() if key in found]
        counts = {
            column: sum(left[place] != right[place] for left, right in both)
            for place, column in enumerate(self.story.columns)
        }
        lacking, too_many = expected.keys() - found.keys(), found.keys() - expected.keys()
        return {**counts, "rows lacking": len(lacking), "rows too many": len(too_many)}

    def _add(self, what: str, examples: Iterable[str]) -> None:
        texts = list(examples)
        more = f" … {len(texts)} in all" if len(texts) > SHOWN else ""
        self.faults.append(f"{what}: {'; '.join(texts[:SHOWN])}{more}")


@dataclass
class Fold:
    """Changes folded from the first one on, each checked against the current row of its key."""

    story: Story
    rows: dict[int, Row] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    _before: dict[int, int] = field(default_factory=dict)
    """Keys with a -U whose +U has not come, with its snapshot."""

    def take(self, change: Mapping[str, Any]) -> None:
        key, kind, snapshot_id = change["k"], change["_ROW_KIND"], change["_SNAPSHOT_ID"]
        values, current = values_of(self.story, change), self.rows.get(key)
        awaited = self._before.pop(key, None)
        if (kind == "+U") != (awaited == snapshot_id):
            self._fault(change, "a -U and its +U do not follow each other")
        elif kind in ("-U", "-D") and values != current:
            self._fault(change, f"there is {current}")
        elif kind == "+I" and current is not None:
            self._fault(change, f"there is {current} already")
        if kind in ("+I", "+U"):
            self.rows[key] = values
        else:
            self.rows.pop(key, None)
        if kind == "-U":
            self._before[key] = snapshot_id

    def end(self) -> None:
        """After the last change."""
        self.faults += [f"snapshot {number}: a -U of key {key} has no +U" for key, number in self._before.items()]

    def _fault(self, change: Mapping[str, Any], reason: str) -> None:
        values = values_of(self.story, change)
        self.faults.append(
            f"snapshot {change['_SNAPSHOT_ID']}: {change['_ROW_KIND']} key {change['k']} {values}: {reason}"
        )


def summed_up(what: str, faults: Sequence[str]) -> list[str]:
    """Faults of a series of states as one: the first and the last."""
    if len(faults) <= 2:
        return list(faults)
    return [f"{what}: {len(faults)} faults, first {faults[0]}", f"{what}: last {faults[-1]}"]


def values_of(story: Story, row: Mapping[str, Any]) -> Row:
    """The columns without the key."""
    return tuple(row[name] for name in story.columns)


def has_level_0(files: Iterable[ManifestEntry]) -> bool:
    return any(entry.file.level == 0 for entry in files)


def overlaps(files: Iterable[ManifestEntry]) -> list[str]:
    """Neighbours of one level above 0 of a bucket whose key ranges are not disjoint."""
    levels: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for entry in files:
        file = entry.file
        if file.level > 0:
            levels[entry.bucket, file.level].append((_bigint(file.min_key), _bigint(file.max_key), file.file_name))
    return [
        f"bucket {bucket} level {level}: keys {left[0]} to {left[1]} and {right[0]} to {right[1]}"
        for (bucket, level), ranges in levels.items()
        for left, right in pairwise(sorted(ranges))
        if right[0] <= left[1]
    ]


def _bigint(key: bytes) -> int:
    """The one BIGINT of a serialized key: its last 8 bytes, little endian."""
    return int.from_bytes(key[-8:], "little", signed=True)
