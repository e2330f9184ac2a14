"""A changelog: the changes of a range of snapshots, planned from metadata and read as Arrow data.

    log = table.changelog(from_snapshot=5, columns=["id"], filter=col("total") > 10)
    log.plan()          splits: what can be read independently, in this or another process
    log.read_split(s)   the changes of one of them
    log.to_batches()    one batch after the other in bounded memory, in the order of the snapshots
    log.to_arrow()      everything at once
    log.to_reader()     the same as to_batches, as a RecordBatchReader

Rows are the table's columns, `_ROW_KIND` and `_SNAPSHOT_ID`. The range is chosen when the changelog is made; old files
are read in the columns that the table has now. Changes of one key come in their order: they lie in one bucket, and
snapshots come one after the other. A changelog can be pickled: another process plans the same splits.

| mode | reads |
|---|---|
| changelog | what the table's changelog producer wrote; appended rows of an append table (`change_source`) |
| delta | the rows that appends wrote, with the kinds they were written with: upserts, of a keyed table |
| diff | what differs between two snapshots, whatever happened between them (keyed tables) |

An incremental read (`changes_between`) is one of two ends: the first is not part of it, the second is.

| end given as | is |
|---|---|
| whole number | the id of a snapshot; 0 is the table before its first |
| text | the snapshot of a tag |
| datetime with a time zone | the newest snapshot committed at or before it, else the one before the oldest |

| mode | snapshots (start, end] | rows |
|---|---|---|
| auto | | diff between two tags; else changelog where there is one, delta elsewhere |
| delta | APPEND | those written, unmerged, with the kinds they were written with |
| changelog | all but OVERWRITE | of the changelog files; of an append table those appended |
| diff | both ends only | +I of a key only in the end, -U and +U where values differ, -D of a key only in the start |

Apache Paimon's diff leaves out the -U, takes the rows that changed as they were written, and for keys whose files did
not all change may give part of a merged row; here both states are merged as a scan merges them, then compared.

Source: MERGING.md §6.5.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.changes.change_source import (
    ChangeRules,
    ChangeSource,
    changelog_source,
    check_has_changelog,
    delta_source,
)
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.planner import ChangePlanner
from freshet.storage.changes.producer_change import ProducerChanges, is_missing_changelog, missing_changelog_error
from freshet.storage.changes.reader import ChangeSplitReader
from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.merge.gather import limited
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import time_ms
from freshet.storage.model.data_type import DataField
from freshet.storage.model.display import ids_text
from freshet.storage.model.shown import facts_html, note_html
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import ChangeSplit
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.scan.frame_outputs import FrameOutputs
from freshet.storage.scan.preview import COLUMNS, TOO_LARGE, first_rows, is_cheap_to_plan
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import check_columns


class ChangeMode(StrEnum):
    """What is read of each snapshot."""

    CHANGELOG = "changelog"
    """Everything that has changes, also overwrites where the table's options ask for them."""
    CHANGELOG_FILES = "changelog-files"
    """Changelog files only."""
    DELTA = "delta"
    DIFF = "diff"


SNAPSHOTS_SHOWN: Final = 5
"""How many snapshots a notebook looks at for the first changes."""


class Changelog(FrameOutputs):
    """Changes of some snapshots; nothing is read before the rows are asked for. `Table.changelog` gives it."""

    def __init__(
        self,
        store: TableStore,
        snapshot_ids: range,
        *,
        mode: ChangeMode = ChangeMode.CHANGELOG,
        columns: Sequence[str] | None = None,
        filter: Predicate | None = None,  # noqa: A002  # the word every reader library uses
        limit: int | None = None,
        ends: tuple[Snapshot | None, Snapshot | None] | None = None,
    ) -> None:
        """`ends` are the two snapshots of a difference, which may be those of tags; None is the empty table."""
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidRequestError(f"limit is a number of changes and cannot be {limit!r}")
        store.check_is_there()
        self._store = store
        self._place = store.name
        self._ids = snapshot_ids
        self._mode = mode
        self._limit = limit
        self._ends = ends
        self._filter = ScanFilter.bind(store.schema, filter)
        self._reader = ChangeSplitReader(store, check_columns(store, columns), self._filter)
        self._planner = ChangePlanner(store, self._filter)
        self._history = ChangeHistory(store)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows that come out: those asked for, `_ROW_KIND` and `_SNAPSHOT_ID`."""
        return self._reader.schema

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among them, with the types of the table."""
        return tuple(self._store.schema.by_name[name] for name in self._reader.columns)

    @property
    def snapshot_ids(self) -> range:
        """Ids of the snapshots whose changes are read; the next reader goes on at `snapshot_ids.stop`."""
        return self._ids

    def __repr__(self) -> str:
        return f"Changelog({self._store.name!r}, {self._mode}, {self._range})"

    def _html(self) -> str:
        """Reads the first rows of the first snapshots; none of a difference, for which all has to be compared."""
        filtered = "" if self._filter is None else ", ".join(sorted(self._filter.predicate.columns()))
        facts = (("mode", str(self._mode)), ("of", self._range), ("filter on", filtered), ("limit", self._limit))
        title = f"Changes of {self._store.name}"
        if not self._ids or self._ends is not None:
            return facts_html(title, facts)
        looked_at: frozenset[str] = frozenset() if self._filter is None else self._filter.predicate.columns()
        shown = self._reader.columns[:COLUMNS]
        reader = ChangeSplitReader(self._store, tuple(dict.fromkeys((*shown, *sorted(looked_at)))))
        schema = pa.schema([field for field in reader.schema if field.name not in looked_at.difference(shown)])
        predicate = None if self._filter is None else self._filter.predicate
        snapshots = [self._history.still_there(each) for each in self._ids[:SNAPSHOTS_SHOWN]]
        if not all(is_cheap_to_plan(self._store, each) for each in snapshots):
            return facts_html(title, facts, note_html(TOO_LARGE))
        rows = first_rows(self._changes_of(snapshots, reader), predicate, schema, self._limit)
        rows = replace(rows, is_all=rows.is_all and len(snapshots) == len(self._ids))
        return facts_html(title, facts, rows.html(len(self.schema)))

    def _changes_of(self, snapshots: Sequence[Snapshot], reader: ChangeSplitReader) -> Iterator[pa.RecordBatch]:
        for snapshot in snapshots:
            with self._history.explained(snapshot):
                for split in self._planner.plan(snapshot, self._source(snapshot)):
                    yield from reader.read(split)

    @property
    def _range(self) -> str:
        if self._ends is not None:
            low, high = (0 if end is None else end.id for end in self._ends)
            return f"from snapshot {low} to {high}"
        return f"snapshots {ids_text(self._ids)}" if self._ids else "no snapshots"

    def plan(self) -> list[ChangeSplit]:
        """Splits that together hold every change that can match, by snapshot; a limit does not show here.

        This and everything that reads raises `RetryableError` when changes have expired meanwhile, and `NotFoundError`
        when the table was dropped.
        """
        return [split for _, splits in self._planned() for split in splits]

    def read_split(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        """Changes of one split of this plan, in the calling thread only; a limit counts within the split."""
        new = None if self._ends is None else self._ends[1]
        return limited(self._read(new or self._history.still_there(split.snapshot_id), split), self._limit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The changes, in bounded memory. One file is open at a time, until the generator is closed."""
        return limited(self._batches(), self._limit)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for snapshot, splits in self._planned():
            for split in splits:
                yield from self._read(snapshot, split)

    def _read(self, snapshot: Snapshot, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        with self._history.explained(snapshot):
            yield from self._reader.read(split)

    def _planned(self) -> Iterator[tuple[Snapshot, list[ChangeSplit]]]:
        if self._ends is not None:
            yield from self._compared(*self._ends)
            return
        before: Snapshot | None = None
        for snapshot_id in self._ids:
            snapshot = self._history.still_there(snapshot_id)
            with self._history.explained(snapshot):
                self._check_told(snapshot)
                self._check_goes_on(before, snapshot)
                splits = self._planner.plan(snapshot, self._source(snapshot))
            yield snapshot, splits
            self._history.check_not_replaced(snapshot)
            before = snapshot

    def _check_told(self, snapshot: Snapshot) -> None:
        if self._mode is ChangeMode.DELTA or not self._is_untold(snapshot):
            return
        rest = [self._history.find(each) for each in self._ids if each >= snapshot.id]
        untold = [each.id for each in rest if each is not None and self._is_untold(each)]
        which = f"snapshot {untold[0]} was" if len(untold) == 1 else f"snapshots {ids_text(untold)} were"
        raise missing_changelog_error(
            self._store,
            which,
            f"Read the changelog from snapshot {untold[-1] + 1} on, or what differs between two snapshots with "
            "changes_between and mode='diff'",
        )

    def _check_goes_on(self, before: Snapshot | None, snapshot: Snapshot) -> None:
        if before is None or self._mode is ChangeMode.DELTA:
            return
        ProducerChanges(self._store).check(
            before.schema_id,
            snapshot,
            f"Read the changelog up to snapshot {before.id} and from snapshot {snapshot.id} on, each by itself, or "
            "what differs between two snapshots with changes_between and mode='diff'",
        )

    def _is_untold(self, snapshot: Snapshot) -> bool:
        return is_missing_changelog(self._store, ChangeRules.of(self._store.options), snapshot)

    def _compared(self, old: Snapshot | None, new: Snapshot | None) -> Iterator[tuple[Snapshot, list[ChangeSplit]]]:
        if new is None or old == new:
            return
        with self._history.explained(new), self._history.explained(old or new):
            splits = self._planner.difference(old, new)
        yield new, splits

    def _source(self, snapshot: Snapshot) -> ChangeSource:
        match self._mode:
            case ChangeMode.DELTA:
                return delta_source(snapshot)
            case ChangeMode.CHANGELOG_FILES:
                return changelog_source(snapshot)
        return ChangeRules.of(self._store.options).source(snapshot)

    def __reduce__(self) -> tuple[Any, ...]:
        predicate = None if self._filter is None else self._filter.predicate
        ends = self._ends and [None if end is None else encode_snapshot(end) for end in self._ends]
        return _reopened, (self._store, self._ids, self._mode, self._reader.columns, predicate, self._limit, ends)


def _reopened(
    store: TableStore,
    snapshot_ids: range,
    mode: ChangeMode,
    columns: tuple[str, ...],
    predicate: Predicate | None,
    limit: int | None,
    encoded_ends: list[bytes | None] | None,
) -> Changelog:
    """A changelog that was pickled; the snapshots are those chosen then."""
    ends = None
    if encoded_ends is not None:
        low, high = (None if data is None else decode_snapshot(data, store.location) for data in encoded_ends)
        ends = (low, high)
    return Changelog(store, snapshot_ids, mode=mode, columns=columns, filter=predicate, limit=limit, ends=ends)


EndGiven = int | str | datetime.datetime
"""A snapshot id, the name of a tag, or a datetime with a time zone."""


class BetweenMode(StrEnum):
    """What is read between two ends."""

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


class _Ends(Frozen):
    """Ids of both ends. `tags` are the snapshots of tags, which may have expired, by id."""

    start: int
    end: int
    are_tags: bool
    tags: dict[int, Snapshot]

    @property
    def ids(self) -> range:
        """Snapshots after the start up to the end."""
        return range(self.start + 1, self.end + 1)


def changes_between(
    store: TableStore,
    table: str,
    start: EndGiven,
    end: EndGiven,
    mode: str,
    *,
    columns: Sequence[str] | None,
    filter: Predicate | None,  # noqa: A002  # the word every reader library uses
    limit: int | None,
) -> Changelog:
    """The changes after one end up to the other; raises as `Table.changes_between` says."""
    ends, asked = _find_ends(store, start, end), _between_mode(mode)
    rules = ChangeRules.of(store.options)
    if asked is BetweenMode.AUTO and ends.are_tags and rules.has_primary_key:
        asked = BetweenMode.DIFF
    if asked is BetweenMode.CHANGELOG:
        check_has_changelog(rules, table, "read the rows as they were written with mode='delta'")
    if asked is BetweenMode.DIFF:
        if not rules.has_primary_key:
            raise InvalidRequestError(
                f"table {table} has no primary key by which two states could be compared; use mode='delta'",
                table=table,
            )
        ids, how, states = range(ends.end, ends.end + 1), ChangeMode.DIFF, _end_states(store, ends)
    else:
        reads_files = asked is not BetweenMode.DELTA and rules.producer is not ChangelogProducer.NONE
        ids, how, states = ends.ids, ChangeMode.CHANGELOG_FILES if reads_files else ChangeMode.DELTA, None
        _check_ids(ChangeHistory(store), ids)
        if how is ChangeMode.DELTA:
            _check_rows_written(store, ids)
    return Changelog(store, ids, mode=how, columns=columns, filter=filter, limit=limit, ends=states)


def _between_mode(text: str) -> BetweenMode:
    try:
        return BetweenMode(str(text).lower())
    except ValueError:
        raise InvalidRequestError(
            f"mode is one of {', '.join(BetweenMode)}, not {text!r}", option="incremental-between-scan-mode"
        ) from None


def _find_ends(store: TableStore, start: EndGiven, end: EndGiven) -> _Ends:
    if isinstance(start, datetime.datetime) and isinstance(end, datetime.datetime) and start > end:
        raise InvalidRequestError(f"the end {end} is before the start {start}")
    tags: dict[int, Snapshot] = {}
    ids = [_id_of(store, name, given, tags) for name, given in (("start", start), ("end", end))]
    if ids[0] > ids[1]:
        raise InvalidRequestError(
            f"the end {end!r} (snapshot {ids[1]}) is before the start {start!r} (snapshot {ids[0]})"
        )
    return _Ends(ids[0], ids[1], isinstance(start, str) and isinstance(end, str), tags)


def _check_ids(history: ChangeHistory, ids: range) -> None:
    if not ids:
        return
    earliest, latest = history.earliest_id(), history.latest_id()
    if earliest is None or ids[0] < earliest or ids[-1] > latest:
        raise NotFoundError(
            f"changes of snapshots {ids[0]} to {ids[-1]} are asked for: {history.left_text()} (the start of an "
            "incremental read is not part of it)"
        )


def _check_rows_written(store: TableStore, ids: range) -> None:
    """Some snapshots may have expired and left their changelog, without the rows written."""
    first = store.snapshots.earliest_id()
    if not ids or first is None or ids[0] >= first or store.options.changelog_producer is ChangelogProducer.NONE:
        return
    raise NotFoundError(
        f"the rows written by snapshots {ids[0]} to {ids[-1]} of {store.location} are asked for, but snapshots before "
        f"{first} have expired: only their changelogs are kept. Read those with mode='changelog', or begin after "
        f"snapshot {first - 1}",
        table=store.location,
    )


def _end_states(store: TableStore, ends: _Ends) -> tuple[Snapshot | None, Snapshot | None]:
    """The snapshots of both ends; None for the table before its first."""
    low, high = (
        None if snapshot_id == 0 else ends.tags.get(snapshot_id) or store.snapshots.snapshot(snapshot_id)
        for snapshot_id in (ends.start, ends.end)
    )
    return low, high


def _id_of(store: TableStore, name: str, given: Any, tags: dict[int, Snapshot]) -> int:
    if isinstance(given, str):
        snapshot = store.snapshots.tags.of(given)
        tags[snapshot.id] = snapshot
        return snapshot.id
    if isinstance(given, datetime.datetime):
        found = store.snapshots.at_or_before(time_ms(name, given))
        earliest = store.snapshots.earliest_id()
        return found.id if found is not None else 0 if earliest is None else earliest - 1
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise InvalidRequestError(
            f"the {name} of an incremental read is a snapshot id, the name of a tag or a datetime, not {given!r}"
        )
    return given
