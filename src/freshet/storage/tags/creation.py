"""Makes, replaces and renames tags, so that a tag that can be seen can be read.

An expiry plans by the tags that it sees. It removes the snapshots, then looks at the tags again, then removes files;
who makes a tag writes it, then looks whether what it was made of is still there. Whichever comes first, one sees the
other: the expiry keeps the files of the tag, or the tag is taken back and refused. The same holds between a tag that
is made of another one, whose snapshot has expired, and the removal of that.

An expiry of another program removes files before snapshots, and does not look again: where one may run, tag a snapshot
that is not about to expire, such as the latest. A crash between the two steps, while an expiry runs, may leave a tag
that cannot be read: it can be deleted.

There is no rename of files. A rename makes the new tag, then removes the old one: a crash leaves both.

Source: FORMAT.md §12, §12.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from freshet.storage.exceptions import AlreadyExistsError, ConflictError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.metadata.tag_store import check_tag_name
from freshet.storage.model.moment import TimeGiven, time_ms
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.tag import Tag
from freshet.storage.tags.removal import TagRemoval, is_held, release, remove_tag
from freshet.storage.tags.rule import tag_rule


def tag_of(store: TableStore, name: str, snapshot: Snapshot, retained: timedelta | None) -> Tag:
    """The tag as it would be made now; without a time to stay, that of the options."""
    default_ms = store.options.tag_default_time_retained_ms
    if retained is None and default_ms is not None:
        retained = timedelta(milliseconds=default_ms)
    if retained is None:
        return Tag(name, snapshot)
    if not isinstance(retained, timedelta) or retained <= timedelta(0):
        raise InvalidRequestError(f"a tag is retained for a timedelta of more than 0, not {retained!r}")
    return Tag(name, snapshot, local_now(store.env), retained)


def local_now(env: Env) -> datetime:
    """What the clock of this machine shows, without a zone."""
    return local_time(env, env.now_ms())


def local_time(env: Env, time_ms: int) -> datetime:
    """What the clock of this machine shows at a moment, without a zone."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=env.wall_clock_ms(time_ms))
    return at.replace(tzinfo=None)


def snapshot_to_tag(store: TableStore, snapshot_id: int | None, timestamp_ms: TimeGiven | None) -> Snapshot:
    """The snapshot as it is on disk: the latest, one of an id, or the last one of a time. One that has expired counts
    where a tag holds it.

    `NotFoundError` names what there is.
    """
    snapshots = store.snapshots
    if isinstance(timestamp_ms, datetime):
        timestamp_ms = time_ms("timestamp_ms", timestamp_ms)
    if snapshot_id is not None and timestamp_ms is not None:
        raise InvalidRequestError("snapshot_id and timestamp_ms exclude each other: a tag names one snapshot; give one")
    for word, value in (("snapshot_id", snapshot_id), ("timestamp_ms", timestamp_ms)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidRequestError(f"{word} must be a whole number, not {value!r}")
    if snapshot_id is None:
        found = snapshots.latest() if timestamp_ms is None else snapshots.at_or_before(timestamp_ms)
        if found is None:
            when = "" if timestamp_ms is None else f" that was committed at or before {timestamp_ms} ms"
            raise NotFoundError(
                f"table {store.name} has no snapshot{when}; a tag names a snapshot that is there", table=store.name
            )
        return found
    found = snapshots.find(snapshot_id)
    if found is not None:
        return found
    tags = snapshots.tags.tags().values()
    held = next((tag.snapshot for tag in tags if tag.snapshot_id == snapshot_id), None)
    if held is None:
        ids = snapshots.list_ids()
        there = f"snapshots {ids[0]} to {ids[-1]}" if ids else "no snapshots"
        tagged = ", ".join(f"{tag.snapshot_id} ({tag.name})" for tag in tags) or "none"
        raise NotFoundError(
            f"snapshot {snapshot_id} is not there: table {store.name} has {there}; of those that expired, tags hold "
            f"{tagged}",
            table=store.name,
        )
    return held


def check_auto_name(store: TableStore, tag: Tag) -> None:
    """Refuses a name, given by hand, that would be a second automatic one of its snapshot: automatic tags are counted
    by their snapshots."""
    rule = tag_rule(store.options, store.env)
    if rule is None or rule.period.begin_ms(tag.name) is None:
        return
    for name, snapshot in store.snapshots.tags.all().items():
        if snapshot.id == tag.snapshot_id and name != tag.name and rule.period.begin_ms(name) is not None:
            raise InvalidRequestError(
                f"snapshot {tag.snapshot_id} of table {store.name} has the automatic tag {name!r}, and {tag.name!r} "
                "would be another one; choose a name that is no time of the tag.creation-period",
                table=store.name,
            )


def create_tag(store: TableStore, tag: Tag) -> None:
    """Makes a tag of a name that is free; `AlreadyExistsError` where it is not, `NotFoundError` where the snapshot
    expires meanwhile."""
    check_tag_name(tag.name)
    if not store.snapshots.tags.create(tag):
        raise AlreadyExistsError(
            f"table {store.name} has a tag {tag.name!r} already; replace it, delete it, or choose another name",
            table=store.name,
        )
    _check_holds(store, tag, lambda: remove_tag(store, tag))


def replace_tag(store: TableStore, old: Tag, new: Tag) -> TagRemoval:
    """Lets a tag name another snapshot, and removes what only it named until then.

    One that names the same snapshot as before gets a new time; its snapshot may have expired.
    """
    store.snapshots.tags.write(new)
    if old.snapshot == new.snapshot:
        return TagRemoval(old)
    _check_holds(store, new, lambda: store.snapshots.tags.write(old))
    return release(store, old)


def rename_tag(store: TableStore, old: Tag, name: str) -> Tag:
    """Gives a tag another name, which must be free; its retention stays. Where the tag goes meanwhile, or is another
    one by then, the new name goes too: it would have brought the old tag back."""
    new = replace(old, name=name)
    check_tag_name(name)
    if not store.snapshots.tags.create(new):
        raise AlreadyExistsError(
            f"table {store.name} has a tag {name!r} already; delete it, or choose another name", table=store.name
        )
    _check_holds(store, new, lambda: remove_tag(store, new))
    found = store.snapshots.tags.find(old.name)
    if found != old:
        remove_tag(store, new)
        what = "was removed" if found is None else "was replaced"
        raise ConflictError(
            f"tag {old.name!r} of table {store.name} {what} while it got the name {name!r}, which was taken back; look "
            "at the tags again",
            table=store.name,
        )
    store.snapshots.tags.remove(old.name)
    return new


def _check_holds(store: TableStore, tag: Tag, take_back: Callable[[], object]) -> None:
    """Looks whether what a new tag was made of is still there."""
    store.env.reach(CrashPoint.TAG_WRITTEN)
    if is_held(store, tag.snapshot):
        return
    others = (each for name, each in store.snapshots.tags.all().items() if name != tag.name)
    if tag.snapshot not in others:
        take_back()
        raise NotFoundError(
            f"snapshot {tag.snapshot_id} of table {store.name} expired while tag {tag.name!r} was made of it; the tag "
            "was taken back. Tag a later snapshot",
            table=store.name,
        )
