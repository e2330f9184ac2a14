"""The two ends of an incremental read: the first is not part of it, the second is.

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
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from freshet._frozen import Frozen
from freshet.storage.changes.change_source import ChangeRules, check_has_changelog
from freshet.storage.changes.changelog import Changelog, ChangeMode
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.moment import time_ms
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import ChangelogProducer

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
