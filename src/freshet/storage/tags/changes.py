"""Makes, replaces and renames tags, so that a tag that can be seen can be read; removes them with what only they named.

An expiry plans by the tags that it sees. It removes the snapshots, then looks at the tags again, then removes files;
who makes a tag writes it, then looks whether what it was made of is still there. Whichever comes first, one sees the
other: the expiry keeps the files of the tag, or the tag is taken back and refused. The same holds between a tag that
is made of another one, whose snapshot has expired, and the removal of that.

An expiry of another program removes files before snapshots, and does not look again: where one may run, tag a snapshot
that is not about to expire, such as the latest. A crash between the two steps, while an expiry runs, may leave a tag
that cannot be read: it can be deleted.

There is no rename of files. A rename makes the new tag, then removes the old one: a crash leaves both.

Removal:

1. While the snapshot of the tag is there, the file of the tag is all that goes.
2. Else what only the tag names is found first: data and changelog files, manifests, lists, index files, statistics that
   no snapshot of the main line, no other tag, no branch and no kept changelog names. If one of those cannot be read,
   nothing is removed.
3. The file of the tag goes: from here on no reader can ask for what follows. A crash leaves nothing but orphans.
4. Tags and branches are looked at again: one that was made of this one meanwhile keeps its files.
5. Data files go, then manifests.

Of the main line the earliest and the latest snapshot are asked, and the overwrites between: whatever lived at the tag
lives at the earliest, or an overwrite has brought it back. Apache Paimon asks the tag on either side.

Source: FORMAT.md §12, §12.1, §12.2; decision: docs/decisions/catalogs-and-expiry.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.cleaning.named_files import (
    KeptSnapshot,
    MetadataNames,
    ReadableManifests,
    data_paths,
    delete_data,
    delete_metadata,
    kept_refs,
    live_of,
    metadata_names,
    metadata_paths,
    named_index_of,
    named_lately,
    names_of_copy,
    without_names,
)
from freshet.storage.exceptions import (
    AlreadyExistsError,
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    MissingFileError,
    NotFoundError,
)
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.metadata.live_files import changelog_entries
from freshet.storage.metadata.snapshot_store import ID_MAX
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.metadata.tag_store import check_tag_name
from freshet.storage.model.arguments import TimeGiven, time_ms
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.tag import Tag
from freshet.storage.options.choices import ChangelogProducer
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


_ATTEMPTS: Final = 5
"""Snapshots may expire, and others may delete tags, while they are asked what they name."""


@dataclass(frozen=True, slots=True, repr=False)
class TagRemoval(Shown):
    """A tag that is gone, or would be (`is_dry_run`), and how many files with it, those that could not be deleted
    included."""

    tag: Tag
    data_file_count: int = 0
    metadata_file_count: int = 0
    failed_delete_count: int = 0
    is_dry_run: bool = False

    def _shown(self) -> Facts:
        yield from (("tag", repr(self.tag.name)), ("of snapshot", self.tag.snapshot_id))
        yield from (("data files", self.data_file_count), ("metadata files", self.metadata_file_count))
        yield from (("not deleted", self.failed_delete_count), ("only tried", self.is_dry_run))


class _OwnFiles(Frozen):
    """Paths of what only one tag names."""

    data: tuple[tuple[str, ...], ...] = ()
    """The files of one folder together."""
    metadata: tuple[str, ...] = ()
    kept: tuple[Snapshot, ...] = ()
    """The snapshots that were asked."""

    @property
    def data_count(self) -> int:
        return sum(map(len, self.data))


def remove_tag(store: TableStore, tag: Tag, *, is_dry_run: bool = False) -> TagRemoval:
    """Removes the tag with what only it names; a tag whose file is gone already loses the rest."""
    doomed = None if is_held(store, tag.snapshot) else _doomed(store, tag)
    if is_dry_run:
        doomed = doomed or _OwnFiles()
        return TagRemoval(tag, doomed.data_count, len(doomed.metadata), is_dry_run=True)
    store.snapshots.tags.remove(tag.name)
    store.env.reach(CrashPoint.TAG_REMOVED)
    return release(store, tag, doomed)


def release(store: TableStore, tag: Tag, doomed: _OwnFiles | None = None) -> TagRemoval:
    """Removes what only a tag named whose file is gone."""
    if doomed is None:
        if is_held(store, tag.snapshot):
            return TagRemoval(tag)
        doomed = _doomed(store, tag)
    late = named_lately(store, doomed.kept, end=ID_MAX)
    data = delete_data(store, without_names(doomed.data, late))
    metadata = delete_metadata(store, *without_names([doomed.metadata], late))
    return TagRemoval(
        tag,
        data_file_count=sum(each.deleted_count for each in data),
        metadata_file_count=sum(each.deleted_count for each in metadata),
        failed_delete_count=sum(each.failed_count for each in (*data, *metadata)),
    )


def is_held(store: TableStore, snapshot: Snapshot) -> bool:
    """True where the snapshot itself is there still."""
    return snapshot.is_same(store.snapshots.find(snapshot.id))


def _doomed(store: TableStore, tag: Tag) -> _OwnFiles:
    for attempt in range(_ATTEMPTS):
        before = _there(store)
        try:
            return _plan(store, tag)
        except (NotFoundError, MissingFileError) as error:
            if _there(store) == before or attempt == _ATTEMPTS - 1:
                raise CorruptDataError(
                    f"what tag {tag.name!r} shares with others cannot be found out ({error}); nothing was removed. "
                    "If another tag is damaged, delete that first; freshet check-table looks at the snapshots",
                    path=store.location,
                ) from error
    raise AssertionError("the last attempt returns or raises")


def _there(store: TableStore) -> tuple[int | None, dict[str, Snapshot]]:
    return store.snapshots.earliest_id(), store.snapshots.tags.all()


def _plan(store: TableStore, tag: Tag) -> _OwnFiles:
    index, source = named_index_of(store.manifests), ReadableManifests(store.manifests)
    main = [(store.manifests, snapshot) for snapshot in _main_line(store, tag)]
    kept: list[KeptSnapshot] = [*main, *kept_refs(store, without_tag=tag.name)]
    snapshots = tuple(snapshot for _, snapshot in kept)
    if any(tag.snapshot.is_same(each) for each in snapshots):
        return _OwnFiles(kept=snapshots)
    live = live_of(source, tag.snapshot)
    named = index.live_among(kept, live)
    data = [entry for entry in live if entry.file.file_name not in named]
    by_copies = _needed_by_copies(store, source)
    paths = data_paths(store, [*data, *_changelog_files(source, tag.snapshot, snapshots)])
    metadata = metadata_paths(store, _unnamed_metadata(store, tag.snapshot, kept))
    return _OwnFiles(
        data=tuple(without_names(paths, by_copies)), metadata=without_names([metadata], by_copies)[0], kept=snapshots
    )


def _needed_by_copies(store: TableStore, source: ReadableManifests) -> set[str]:
    """What the changes of kept changelogs need, which is not all that lived at their snapshots. Data files are changes
    of a table without a changelog producer alone; while a tag holds the manifests, those of others seem so too."""
    copies = store.changelogs.all().values()
    producers = {
        schema_id: store.at_schema(schema_id).options.changelog_producer
        for schema_id in {copy.schema_id for copy in copies}
    }
    return {
        name
        for copy in copies
        if copy.changelog_manifest_list is not None or producers[copy.schema_id] is ChangelogProducer.NONE
        for name in names_of_copy(source, copy)
    }


def _main_line(store: TableStore, tag: Tag) -> Iterator[Snapshot]:
    """The snapshots that name all that any of the main line names which the tag may name: of a tag below the line its
    ends and overwrites, of another (ids were used again) all of them."""
    earliest, latest = store.snapshots.earliest(), store.snapshots.latest()
    if earliest is None or latest is None:
        return
    if tag.snapshot_id >= earliest.id:
        yield from store.snapshots.all()
        return
    yield earliest
    yield latest
    for snapshot in map(store.snapshots.known_or_find, range(earliest.id + 1, latest.id)):
        if snapshot is not None and snapshot.commit_kind is CommitKind.OVERWRITE:
            yield snapshot


def _changelog_files(source: ReadableManifests, snapshot: Snapshot, kept: tuple[Snapshot, ...]) -> list[ManifestEntry]:
    """Only a copy of the snapshot names its changelog files as well, by the same list."""
    if snapshot.changelog_manifest_list in {each.changelog_manifest_list for each in kept}:
        return []
    return list(changelog_entries(source, snapshot))


def _unnamed_metadata(store: TableStore, snapshot: Snapshot, kept: list[KeptSnapshot]) -> MetadataNames:
    index = named_index_of(store.manifests)
    own = metadata_names(ReadableManifests(store.manifests), snapshot)
    manifests, index_files, statistics = own.manifests, own.index_files, own.statistics
    for source, each in kept:
        names = index.names(source, each)
        manifests, index_files = manifests - names.manifests, index_files - names.index_files
        statistics = statistics - names.statistics
    return MetadataNames(manifests, index_files, statistics)
