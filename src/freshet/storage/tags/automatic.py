"""Tags that whoever commits makes of periods that have ended (`tags.rule` decides).

Where to go on follows from the names of the tags: after the snapshot of the newest automatic one. So each of several
committers finds the same snapshots for the same names, in whatever order they look; a tag is an exclusive create, and
who finds its name taken goes on as if he had made it. What a crash leaves undone the next commit does.

| call | when |
|---|---|
| none | a commit after which no tag is due: the snapshots are those that it has seen |
| a listing of the tags, and the newest automatic one | the first commit of a process, and when a tag is due |
| the automatic tags | when one was made, with `tag.num-retained-max` |

A process that begins looks for the first snapshot that may be due by halving, where the times of commits count: they
never go back.

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from freshet._frozen import Frozen
from freshet.storage.exceptions import AlreadyExistsError, NotFoundError, StorageError
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import TagCreation, TagPeriodChoice
from freshet.storage.options.core import PERIOD_MS
from freshet.storage.tags.changes import create_tag, remove_tag, replace_tag, tag_of
from freshet.storage.tags.rule import TagPeriod, TagRule, process_time_zone, tag_rule

_LOG: Final = logging.getLogger(__name__)

PREFIX: Final = "batch-write-"
_DAY: Final = TagPeriod(PERIOD_MS[TagPeriodChoice.DAILY], "%Y-%m-%d")


class _Progress(Frozen):
    """How far the snapshots were looked at."""

    rule: TagRule
    last: str | None
    """Name of the newest automatic tag."""
    last_ms: int | None
    next_id: int
    """The first snapshot that was not looked at since that tag."""


_PROGRESS: Final[WeakKeyDictionary[SnapshotStore, _Progress]] = WeakKeyDictionary()
"""The progress in open tables."""


def create_due_tags(store: TableStore, latest: Snapshot) -> list[str]:
    """Makes the tags that are due with the snapshots up to the latest, and removes those that are too many; the names
    of those it made."""
    rule = tag_rule(store.options, store.env)
    if rule is None:
        return []
    progress = _PROGRESS.get(store.snapshots)
    if progress is None or progress.rule != rule or progress.next_id > latest.id + 1:
        progress = _restored(store, rule, latest, None)
    elif any(rule.due_ms(progress.last_ms, each) is not None for each in _since(store, progress, latest)):
        progress = _restored(store, rule, latest, progress)
    made = []
    for snapshot in _since(store, progress, latest):
        begin_ms = rule.due_ms(progress.last_ms, snapshot)
        if begin_ms is not None:
            name = rule.period.name(begin_ms)
            try:
                create_tag(store, tag_of(store, name, snapshot, None))
            except AlreadyExistsError:
                pass  # another committer's, or made by hand
            except NotFoundError:
                continue  # expired meanwhile: the next one will do
            else:
                made.append(name)
            progress = replace(progress, last=name, last_ms=begin_ms)
            _remove_oldest(store, rule)
        progress = replace(progress, next_id=snapshot.id + 1)
        _PROGRESS[store.snapshots] = progress
    _PROGRESS[store.snapshots] = replace(progress, next_id=latest.id + 1)
    return made


def _since(store: TableStore, progress: _Progress, latest: Snapshot) -> Iterator[Snapshot]:
    """The snapshots that are there from the first one not looked at on."""
    for snapshot_id in range(progress.next_id, latest.id):
        snapshot = store.snapshots.known_or_find(snapshot_id)
        if snapshot is not None:
            yield snapshot
    if progress.next_id <= latest.id:
        yield latest


def _restored(store: TableStore, rule: TagRule, latest: Snapshot, known: _Progress | None) -> _Progress:
    """The progress that the names of the tags show; the one known where they show that."""
    times = {
        name: begin_ms for name in store.snapshots.tags.names() if (begin_ms := rule.period.begin_ms(name)) is not None
    }
    first_id = store.snapshots.earliest_id() or latest.id
    if not times:
        return known if known is not None and known.last is None else _Progress(rule, None, None, first_id)
    last = max(times, key=lambda name: (times[name], name))
    if known is not None and known.last == last:
        return known
    tag = store.snapshots.tags.find(last)
    if tag is not None:
        first_id = max(first_id, tag.snapshot_id + 1)
    first_id = _first_due_id(store, rule, times[last], first_id, latest)
    return _Progress(rule, last, times[last], first_id)


def _first_due_id(store: TableStore, rule: TagRule, last_ms: int, first_id: int, latest: Snapshot) -> int:
    """The first snapshot that may be due, by the times of commits."""
    if rule.by_watermark:
        return first_id
    threshold_ms = rule.zone.earliest_instant_ms(rule.threshold_ms(last_ms))
    low, high = first_id, latest.id + 1
    while low < high:
        middle = (low + high) // 2
        snapshot = latest if middle == latest.id else store.snapshots.known_or_find(middle)
        if snapshot is None or snapshot.time_ms < threshold_ms:  # None: it has expired
            low = middle + 1
        else:
            high = middle
    return low


def _remove_oldest(store: TableStore, rule: TagRule) -> None:
    """Removes the automatic tags of the oldest snapshots while more snapshots have such tags than may."""
    most = store.options.tag_num_retained_max
    if most is None:
        return
    by_snapshot: dict[int, list[str]] = {}
    tags = store.snapshots.tags.tags()
    for name, tag in tags.items():
        if rule.period.begin_ms(name) is not None:
            by_snapshot.setdefault(tag.snapshot_id, []).append(name)
    for snapshot_id in sorted(by_snapshot)[: max(0, len(by_snapshot) - most)]:
        for name in by_snapshot[snapshot_id]:
            remove_tag(store, tags[name])


def leave_batch_tag(store: TableStore) -> None:
    """Makes the tag of a batch program that ends, where the table wants one (`tag.automatic-creation=batch`): the
    day's, at the latest snapshot; failures are logged.

        batch-write-2026-03-01      by the time of the snapshot's commit, in sink.process-time-zone
        tag.batch.customized-name   instead of it

    One of the same name is replaced. `tag.num-retained-max` counts the tags of days. Apache Paimon 2.0.0 makes such
    tags in the batch sink of its Flink connector alone, deletes one before it makes it anew, and counts, and removes,
    the tags that people have made too; all three are left.
    """
    if store.options.tag_automatic_creation is TagCreation.BATCH:
        try:
            create_batch_tag(store)
        except StorageError as error:
            _LOG.warning("table %s: the tag of this batch was not made, make one by hand: %s", store.location, error)


def create_batch_tag(store: TableStore) -> str | None:
    """Makes or replaces the tag; its name, None for a table without a snapshot."""
    latest = store.snapshots.latest()
    if latest is None:
        return None
    name = store.options.tag_batch_customized_name
    if name is None:
        name = PREFIX + _DAY.name(process_time_zone(store.options, store.env).wall_ms(latest.time_ms))
    tag = tag_of(store, name, latest, None)
    try:
        create_tag(store, tag)
    except AlreadyExistsError:
        old = store.snapshots.tags.find(name)
        if old is not None:
            replace_tag(store, old, tag)
    _remove_oldest_days(store)
    return name


def _remove_oldest_days(store: TableStore) -> None:
    most = store.options.tag_num_retained_max
    if most is None:
        return
    tags = store.snapshots.tags.tags()
    days = sorted(
        name for name in tags if re.match(PREFIX, name) and _DAY.begin_ms(name.removeprefix(PREFIX)) is not None
    )
    for name in days[: max(0, len(days) - most)]:
        remove_tag(store, tags[name])
