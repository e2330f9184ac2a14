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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from freshet.storage.exceptions import AlreadyExistsError, NotFoundError
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.tags.creation import create_tag, tag_of
from freshet.storage.tags.removal import remove_tag
from freshet.storage.tags.rule import TagRule, tag_rule


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far the snapshots were looked at."""

    rule: TagRule
    last: str | None
    """Name of the newest automatic tag."""
    last_ms: int | None
    next_id: int
    """The first snapshot that was not looked at since that tag."""


_PROGRESS: Final[WeakKeyDictionary[SnapshotStore, _Progress]] = WeakKeyDictionary()
"""Of open tables."""


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
