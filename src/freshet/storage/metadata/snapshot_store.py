"""The snapshot files of a table: which there are, and which is the latest; `catalogs.claims` makes the next one.

Invariant I1: snapshot N is visible exactly when `snapshot-N` exists; ids are contiguous; hints may be missing or wrong.

| hint | trusted when | otherwise |
|---|---|---|
| LATEST | snapshot-hint exists and snapshot-(hint + 1) does not | step forward from it, or list |
| EARLIEST | snapshot-hint exists and snapshot-(hint - 1) does not | go back from it, or list |

A hint that is missing, low or no number does no harm. A LATEST hint that is higher than all snapshots there are proves
that one was lost: a snapshot is durable before the hint names it, and a rollback writes the hint first. So does a tag.
The table is then refused: as of the snapshot before, rows that were committed would be missing, and the next commit
would take the lost one's id. Names that are no `snapshot-<number>` are skipped.

Snapshots are remembered by id. A rolled-back table uses ids a second time: `latest` and `fresh` read from disk, and
drop what is remembered when it is no longer so. Nothing is remembered above the newest snapshot seen, and `latest`
looks whether that one is still the same. A process that knows the latest snapshot looks with two calls whether it still
is; at a store both are made at the same time, and of those that follow more and more (`_stepped`).

Source: FORMAT.md §1.1, §3.3, §12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot
from freshet.storage.exceptions import CorruptDataError, NotFoundError, StorageError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import numbered_files
from freshet.storage.io.sized_cache import SharedBound
from freshet.storage.metadata.tag_store import TagStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import BRANCH_PREFIX, SNAPSHOT_PREFIX, TablePaths, numbered

_STEPS_BEFORE_LISTING: Final = 16
_STEPS_TOGETHER: Final = 4
"""Snapshots that are asked for at the same time at most, where each is a request."""
CACHED_SNAPSHOTS: Final = SharedBound(4096, 128)
"""Snapshots that are kept, of 2 to 4 KB each."""
ID_MAX: Final = 2**63 - 1

T = TypeVar("T")


class SnapshotStore:
    """Snapshots of one table (or branch), and what names them."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths
        self._cache: dict[int, Snapshot] = {}
        self._newest: tuple[int, bytes] | None = None
        """Id and bytes of the newest snapshot seen."""
        self._chain_start: int | None = None
        """From this snapshot to the newest one, each was seen to follow on the one before."""
        CACHED_SNAPSHOTS.join(self)
        self._oldest_id: int | None = None
        """The EARLIEST hint when its snapshot was last found there, and none before it."""
        self.tags = TagStore(env, paths)

    def exists(self, snapshot_id: int) -> bool:
        """True when the snapshot is visible."""
        return self._env.file_io.exists(self._paths.snapshot(snapshot_id))

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """One snapshot; `NotFoundError` when it has expired or is not there yet."""
        cached = self._cache.get(snapshot_id)
        return self.fresh(snapshot_id) if cached is None else cached

    def or_latest(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot, or the latest where it has expired: any later one will do to restore a bucket."""
        try:
            return self.snapshot(snapshot_id)
        except NotFoundError:
            return self.latest()

    def fresh(self, snapshot_id: int) -> Snapshot:
        """One snapshot as it is on disk now; `NotFoundError` when it is not there."""
        found = self.find(snapshot_id)
        if found is None:
            raise NotFoundError(
                f"snapshot {snapshot_id} does not exist: {self._range_text()} ({self._paths.snapshot(snapshot_id)})",
                path=self._paths.home,
            )
        return found

    def find(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot as it is on disk now, None when it is not there: one call."""
        data = self._bytes(snapshot_id)
        return None if data is None else self._decoded(snapshot_id, data)

    def known_or_find(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot as it was when it was last read, else as `find` does."""
        cached = self._cache.get(snapshot_id)
        return self.find(snapshot_id) if cached is None else cached

    @property
    def newest_seen_id(self) -> int | None:
        """The newest snapshot that was seen: `latest` reads it again."""
        return None if self._newest is None else self._newest[0]

    def _bytes(self, snapshot_id: int) -> bytes | None:
        try:
            return self._env.file_io.read_bytes(self._paths.snapshot(snapshot_id))
        except NotFoundError:
            return None

    def _decoded(self, snapshot_id: int, data: bytes) -> Snapshot:
        known = self._cache.get(snapshot_id)
        if known is not None and self._newest == (snapshot_id, data):
            return known
        path = self._paths.snapshot(snapshot_id)
        snapshot = decode_snapshot(data, path)
        if snapshot.id != snapshot_id:
            raise CorruptDataError(f"the file holds snapshot {snapshot.id}", path=path)
        self._keep(snapshot)
        if self._newest is not None and self._newest[0] < snapshot_id:
            self._newest, self._chain_start = (snapshot_id, data), snapshot_id
        return snapshot

    def _keep(self, snapshot: Snapshot) -> None:
        if self._cache.get(snapshot.id, snapshot) != snapshot:
            self._forget_all()
        while len(self._cache) >= CACHED_SNAPSHOTS.share:
            self._cache.pop(min(self._cache))
        self._cache[snapshot.id] = snapshot

    def has_nothing(self) -> bool:
        """True where there is no snapshot and no hint, as before the first commit."""
        return not any(self._env.file_io.entries(self._paths.snapshot_folder))

    def list_ids(self) -> list[int]:
        """Ids of all visible snapshots, ascending."""
        return list(numbered_files(self._env.file_io, self._paths.snapshot_folder, SNAPSHOT_PREFIX))

    def all(self) -> list[Snapshot]:
        """All visible snapshots, oldest first."""
        found = []
        for snapshot_id in self.list_ids():
            with suppress(NotFoundError):  # expired while we looked
                found.append(self.snapshot(snapshot_id))
        return found

    def latest_id(self) -> int | None:
        """Id of the newest snapshot, or None for a table without any."""
        latest = self.latest()
        return None if latest is None else latest.id

    def latest(self) -> Snapshot | None:
        """The newest snapshot, read from disk, or None for a table without any.

        Raises `CorruptDataError` when there was a newer one, whose file is gone, `NotFoundError` where the schema is
        gone as well: the table is being dropped.
        """
        return self.latest_with(lambda: None)[0]

    def listed_latest(self) -> Snapshot | None:
        """The newest snapshot by a listing, whatever was seen before. As `latest` in all else."""
        self._forget_all()
        return self._listed(self._latest_hint())

    def latest_or_next(self) -> Snapshot | None:
        """The newest snapshot that was seen, or the one after it where that is there by now: later ones are not looked
        for, which costs another call. As `latest` in all else."""
        newest = self._newest
        if newest is None:
            return self.latest()
        there, following = self._env.looks([partial(self._bytes, newest[0]), partial(self._bytes, newest[0] + 1)])
        if there != newest[1]:
            return self.latest()
        known = (None,) if following is None else (following, None)
        return self._stepped(*newest, newest[0] if self._chain_start is None else self._chain_start, known)

    def latest_with(self, other: Callable[[], T]) -> tuple[Snapshot | None, T]:
        """The newest snapshot, and what another look at the table gives, which is made at the same time."""
        given: list[T] = []

        def look() -> None:
            given.append(other())

        newest = self._newest
        if newest is None:
            of_hint: list[Callable[[], int | None]] = [self._latest_hint, look]
            hint, _ = self._env.looks(of_hint)
            self._forget_all()
            return self._hinted(hint), given[0]
        snapshot_id = newest[0]
        of_bytes: list[Callable[[], bytes | None]] = [
            partial(self._bytes, snapshot_id),
            partial(self._bytes, snapshot_id + 1),
            look,
        ]
        there, following, _ = self._env.looks(of_bytes)
        if there == newest[1]:
            chain_start = snapshot_id if self._chain_start is None else self._chain_start
            found = self._stepped(snapshot_id, newest[1], chain_start, (following,))
            if found is not None:
                return found, given[0]
        else:  # expired, or the table was rolled back or created again: ids may mean other snapshots
            self._forget_all()
        return self._hinted(self._latest_hint()), given[0]

    def _forget_all(self) -> None:
        self._cache.clear()
        self._chain_start = None

    def follows(self, start: Snapshot, snapshot: Snapshot) -> bool:
        """True when the later snapshot was seen to follow on the first one, without a call."""
        newest, chain_start = self._newest, self._chain_start
        return (
            newest is not None
            and chain_start is not None
            and chain_start <= start.id <= snapshot.id <= newest[0]
            and self._cache.get(start.id) == start
            and self._cache.get(snapshot.id) == snapshot
        )

    def _latest_hint(self) -> int | None:
        return self._hint(self._paths.latest_hint)

    def _hinted(self, hint: int | None) -> Snapshot | None:
        if hint is not None and hint > 0:
            data, following = self._env.looks([partial(self._bytes, hint), partial(self._bytes, hint + 1)])
            found = None if data is None else self._stepped(hint, data, hint, (following,))
            if found is not None:
                return found
        return self._listed(hint)

    def _stepped(
        self, snapshot_id: int, data: bytes, chain_start: int, known: Sequence[bytes | None]
    ) -> Snapshot | None:
        """The newest snapshot, going forward from one that is there; None when it is far. `known` are those after it
        that were looked at already."""
        together = 1
        for _ in range(_STEPS_BEFORE_LISTING):
            for following in known:
                snapshot = self._decoded(snapshot_id, data)
                if following is None:
                    self._newest, self._chain_start = (snapshot_id, data), chain_start
                    return snapshot
                snapshot_id, data = snapshot_id + 1, following
            ids = range(snapshot_id + 1, snapshot_id + 1 + together)
            known = self._env.looks([partial(self._bytes, each) for each in ids])
            together = min(2 * together, _STEPS_TOGETHER) if self._env.is_remote else 1
        return None

    def _listed(self, hint: int | None) -> Snapshot | None:
        """The newest snapshot by a listing, made after the hint was read: what the hint names was there before."""
        while True:
            ids = self.list_ids()
            if hint is not None and (not ids or ids[-1] < hint):
                ids = self.list_ids()  # a listing may leave out what came and what went while it was made
            self._check_none_lost(hint, ids[-1] if ids else 0)
            if not ids:
                return None
            data = self._bytes(ids[-1])
            if data is not None:  # else rolled back while we looked
                self._newest, self._chain_start = (ids[-1], data), ids[-1]
                return self._decoded(ids[-1], data)
            hint = self._latest_hint()

    def _check_none_lost(self, hint: int | None, newest: int) -> None:
        proofs = {} if hint is None else {f"the hint {self._paths.latest_hint}": hint}
        if hint is None:
            proofs = {f"tag {name!r}": tag.id for name, tag in self.tags.all().items()}
        proof, known = max(proofs.items(), key=lambda item: item[1], default=("", 0))
        if known > newest:
            if not any(self._env.file_io.entries(self._paths.schema_folder)):
                raise NotFoundError(
                    f"the table at {self._paths.home} was dropped or renamed while it was open ({proof} is left of it)",
                    path=self._paths.home,
                )
            there, remedy = "there are none", f"or, where the table is to be empty, remove {proof}"
            if newest:
                there = f"the newest there is is {newest}"
                remedy = f"or, to go back to snapshot {newest} on purpose, make {proof} name it, or remove that"
            raise CorruptDataError(
                f"snapshot {known} was committed ({proof} names it), but {there}: a snapshot file was lost or removed "
                f"by hand. Restore {self._paths.snapshot(known)} from a backup; {remedy}",
                path=self._paths.snapshot_folder,
            )

    def earliest_id(self) -> int | None:
        """Id of the oldest snapshot, or None for a table without any."""
        hint = self._hint(self._paths.earliest_hint)
        if hint is not None and hint == self._oldest_id:
            return hint
        if hint is not None:
            there, lower = self._env.looks([partial(self.exists, each) for each in (hint, hint - 1)])
            if there and not lower:
                self._oldest_id = hint
                return hint
        self._oldest_id = None
        ids = self.list_ids()
        if hint is None or hint not in ids:
            return ids[0] if ids else None
        known = set(ids)
        return next(each for each in range(hint, -1, -1) if each - 1 not in known)

    def earliest(self) -> Snapshot | None:
        """The oldest snapshot, or None for a table without any."""
        earliest_id = self.earliest_id()
        if earliest_id is not None and self.known_or_find(earliest_id) is None:
            self._oldest_id = None  # who let it expire has died before it moved the hint, or is about to
            earliest_id = self.earliest_id()
        return None if earliest_id is None else self.snapshot(earliest_id)

    def newest_first(self, latest: Snapshot | None) -> Iterator[Snapshot]:
        """The latest snapshot and those before it, until one has expired; nothing for None."""
        if latest is None:
            return
        yield latest
        for snapshot_id in range(latest.id - 1, 0, -1):
            try:
                yield self.snapshot(snapshot_id)
            except NotFoundError:
                return

    def at_or_before(self, time_ms: int) -> Snapshot | None:
        """The newest snapshot not younger than the time, or None when all are younger.

        Commit times never go back, so this is a binary search.
        """
        earliest_id, latest_id = self.earliest_id(), self.latest_id()
        if earliest_id is None or latest_id is None:
            return None
        low, high = earliest_id, latest_id + 1  # the answer is in [low - 1, high)
        while low < high:
            middle = (low + high) // 2
            if self.snapshot(middle).time_ms <= time_ms:
                low = middle + 1
            else:
                high = middle
        return self.snapshot(low - 1) if low > earliest_id else None

    def remember(self, snapshot: Snapshot) -> None:
        """Keeps in memory the snapshot that was just made visible: it need not be read."""
        self._keep(snapshot)
        is_next = self._newest is not None and self._newest[0] == snapshot.id - 1
        if self._chain_start is None or not is_next:
            self._chain_start = snapshot.id
        self._newest = (snapshot.id, encode_snapshot(snapshot))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Says which snapshot is the newest; only after it is visible, a hint that runs ahead breaks other readers."""
        self._env.file_io.overwrite(self._paths.latest_hint, str(snapshot_id).encode(), sync=False)

    def write_earliest_hint(self, snapshot_id: int, *, is_oldest: bool = False) -> None:
        """Says which snapshot is the oldest; `is_oldest` where it is known that none before it is there."""
        self._oldest_id = snapshot_id if is_oldest else None
        self._env.file_io.overwrite(self._paths.earliest_hint, str(snapshot_id).encode(), sync=False)

    def forget(self, snapshot_id: int) -> None:
        """Drops a snapshot that was deleted from memory."""
        self._cache.pop(snapshot_id, None)
        if self._newest is not None and self._newest[0] == snapshot_id:
            self._newest = None
        if self._oldest_id == snapshot_id:
            self._oldest_id = None

    def branches(self) -> list[str]:
        """Names of the branches of the table, also of those that are half made or half dropped."""
        statuses = self._env.file_io.entries(self._paths.branch_folder)
        names = (status.name for status in statuses if status.name.startswith(BRANCH_PREFIX) and status.is_folder)
        return sorted(name.removeprefix(BRANCH_PREFIX) for name in names)

    def branch(self, name: str | None) -> SnapshotStore:
        """The snapshots and tags of a branch, None for the table itself."""
        return SnapshotStore(self._env, self._paths.branch(name))

    def other_lines(self) -> Iterator[TablePaths]:
        """The other histories that name files of the same folders: of a table its branches, of a branch the table and
        its other branches.

        Each is looked at before the next one is asked for: a branch that was renamed before it was looked at comes
        again, under its new name.
        """
        seen: set[str | None] = {self._paths.branch_name}
        names: list[str | None] = [None, *self.branches()]
        while fresh := [name for name in names if name not in seen]:
            for name in fresh:
                yield self._paths.branch(name)
            seen |= set(fresh)
            names = [*self.branches()] if any(name is not None for name in fresh) else []

    def hints(self) -> dict[str, int]:
        """The snapshots that the hints name, by path; those that are missing or no number are left out."""
        found = {path: self._hint(path) for path in (self._paths.latest_hint, self._paths.earliest_hint)}
        return {path: number for path, number in found.items() if number is not None}

    def _hint(self, path: str) -> int | None:
        try:
            text = self._env.file_io.read_bytes(path).decode("ascii", "replace")
        except NotFoundError:
            return None
        number = numbered(text.strip(), "")
        return None if number is None or number > ID_MAX else number

    def _range_text(self) -> str:
        try:
            ids = self.list_ids()
        except StorageError:
            return "the snapshots cannot be listed"
        return f"the table has snapshots {ids[0]} to {ids[-1]}" if ids else "the table has no snapshots"
