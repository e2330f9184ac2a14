"""The index of one share of the keys of a table, open upon one snapshot.

    <root>/<table>/<share>-of-<shares>-<slot>.rocks      a RocksDB database
    <the same>.lock                                     its lock: of one writer, or of who removes it

It lies on a local disk, for whoever writes the table next on this machine, and nothing depends on it: what it says
follows from the table. It never has places of rows that are not committed (`write.partition_moves` has those).

| what is found | what is done |
|---|---|
| an index of an older snapshot | it is brought forward by what the commits since have changed (`index_build`) |
| it is locked: another writer uses it | the next slot is taken |
| none, or a damaged one, or of another table; snapshots since it have expired; a commit since has overwritten rows | it is built from the table (`index_build`) |
| it is found to be damaged while keys are looked up | the same, at the snapshot that it stood for |
| its disk is full | `RetryableError`, and what there was of the index is removed |
| it is of a later snapshot | the next slot is taken: a writer that has fallen behind will be refused, nobody else shall pay |

Slots that were not used for `RETENTION_MS`, of any table, are removed when one is built.
"""  # noqa: E501 - a table

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final

import numpy as np

from freshet.storage.exceptions import (
    InvalidRequestError,
    MissingFileError,
    NotFoundError,
    RetryableError,
    StorageError,
)
from freshet.storage.io.local_cache import LOCK_SUFFIX, CacheFolder, LocalCache
from freshet.storage.metadata.local_caches import local_cache
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.place_index.index_build import (
    GONE,
    ChangedKeys,
    LoggedBuild,
    build_index,
    changed_keys,
    moves_keys,
)
from freshet.storage.place_index.index_database import (
    ALL_KEYS,
    BrokenIndexError,
    IndexDatabase,
    IndexState,
    KeyPlaces,
    KeyShare,
    LockedIndexError,
    bucket_of,
    decode_places,
    is_rocksdb_installed,
    place_value,
)

FOLDER: Final = CacheFolder("freshet-place-index", re.compile(r"[0-9a-f]{24}/\d+-of-\d+-\d+\.rocks(\.lock)?"))
SLOTS_MAX: Final = 64
RETENTION_MS: Final = 7 * 24 * 60 * 60 * 1000
CHANGES_MAX: Final = 1_000_000
"""With more changed rows than this, and than the index has keys, building it takes less."""
ASKED_MAX: Final = 100_000
SNAPSHOTS_MAX: Final = 10_000
"""An index that is further behind is built again."""

_LOG: Final = logging.getLogger(__name__)


class ShareIndex:
    """An open index; `close` it whatever happens. Used by one thread."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None, share: KeyShare = ALL_KEYS) -> None:
        """Opens the index of the share, brought to the snapshot. Raises `NotFoundError` where that has expired."""
        if not is_rocksdb_installed():
            raise InvalidRequestError(
                f"{store.location}: its rows move between partitions, and the index of its keys is kept in RocksDB, "
                'which is not installed: pip install "freshet-lake[rocksdb]"',
                path=store.location,
            )
        self._store = store
        self._share = share
        self._ttl_ms = store.options.cross_partition_upsert_index_ttl_ms
        self._asked: dict[bytes, bytes | None] = {}
        """What the index had for keys since it was last changed: most of them are what the next commit changes."""
        self._is_open = False
        self._database: IndexDatabase
        self._state: IndexState
        self._open(snapshot)

    @property
    def counts(self) -> Mapping[BucketId, int]:
        """Keys of each bucket, of this share."""
        return self._state.counts

    @property
    def snapshot_id(self) -> int:
        """The snapshot it stands for, 0 for the table before its first."""
        return self._state.snapshot_id

    @property
    def snapshot_uuid(self) -> str | None:
        """Its uuid, where it has one."""
        return self._state.snapshot_uuid

    def find(self, keys: Sequence[bytes]) -> KeyPlaces:
        """The places of distinct keys."""
        if not self._state.key_count:
            return KeyPlaces.unknown(len(keys))
        values = self._values(list(keys))
        if len(self._asked) < ASKED_MAX:
            self._asked.update(zip(keys, values, strict=True))
        return decode_places(values, since_s=self._since_s())

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Goes on at another snapshot, usually the one just committed."""
        if (0 if snapshot is None else snapshot.id) == self._state.snapshot_id:
            return
        state = self._brought(self._database, self._state, snapshot) if self._is_open else None
        if state is not None:
            self._state, self._snapshot = state, snapshot
            return
        self.close()
        self._open(snapshot)

    def close(self) -> None:
        """Leaves the index to others. May be called twice."""
        try:
            self._database.close()
        finally:
            self._is_open = False
            self._lock.close()

    def _values(self, keys: list[bytes]) -> list[bytes | None]:
        """What the index has for keys. It is built again where it turns out to be damaged: it says the same then."""
        try:
            return self._database.find(keys)
        except BrokenIndexError as error:
            self._note_broken(error)
        if self._is_open:
            self._remove(self._database, self._name)
        self.close()
        self._open(self._snapshot)
        try:
            return self._database.find(keys)
        except BrokenIndexError as error:
            raise self._no_room(error) from error

    def _open(self, snapshot: Snapshot | None) -> None:
        self._asked = {}
        self._snapshot = snapshot
        self._database, self._state = self._opened(snapshot)
        self._is_open = True

    def _opened(self, snapshot: Snapshot | None) -> tuple[IndexDatabase, IndexState]:
        for slot in range(SLOTS_MAX):
            name = f"{self._table_folder}/{self._share.number}-of-{self._share.count}-{slot}.rocks"
            with ExitStack() as lock:
                if not lock.enter_context(self._cache.locked(name)):
                    continue
                try:
                    found = self._at(name, snapshot)
                except LockedIndexError:  # by a child that was forked while it was open
                    continue
                if found is not None:
                    self._name, self._lock = name, lock.pop_all()
                    return found
        raise RetryableError(
            f"all {SLOTS_MAX} indexes of the keys of {self._store.location} below {self._cache.root} are in use: this "
            "machine has too many writers of the table. End some, or remove the folder when none runs"
        )

    def _at(self, name: str, snapshot: Snapshot | None) -> tuple[IndexDatabase, IndexState] | None:
        """The index of this name, whose lock is held, at the snapshot; None where it stands for a later one."""
        try:
            database = IndexDatabase(self._cache.kept_folder(name))
        except BrokenIndexError as error:
            self._note_broken(error)
            self._cache.remove(name)
            database = self._new(name)
        with ExitStack() as unused:
            unused.callback(lambda: database.close())
            state = self._known(database)
            if state is not None and self._is_later(state, snapshot):
                return None
            if state is not None:
                state = self._brought(database, state, snapshot)
            if state is None:
                self._remove(database, name)
                database = self._new(name)
                try:
                    state = self._built(database, snapshot)
                except BrokenIndexError as error:
                    self._remove(database, name)
                    raise self._no_room(error) from error
            unused.pop_all()
        self._cache.note_use(name, self._store.env.now_ms())
        return database, state

    def _new(self, name: str) -> IndexDatabase:
        try:
            return IndexDatabase(self._cache.kept_folder(name))
        except BrokenIndexError as error:
            self._cache.remove(name)
            raise self._no_room(error) from error

    def _known(self, database: IndexDatabase) -> IndexState | None:
        """What it stands for; None where that is no state of this table, or cannot be read."""
        try:
            state = database.state()
        except BrokenIndexError as error:
            self._note_broken(error)
            return None
        return state if state is not None and self._is_of_table(state) else None

    def _note_broken(self, error: BrokenIndexError) -> None:
        _LOG.warning("%s: the index of its keys is built again: %s", self._store.location, error)

    def _no_room(self, error: BrokenIndexError) -> RetryableError:
        return RetryableError(
            f"the index of the keys of {self._store.location} cannot be kept: {error}. Free some space there, or name "
            "another folder with cross-partition-upsert.index-dir"
        )

    def _remove(self, database: IndexDatabase, name: str) -> None:
        database.close()
        self._cache.remove(name)

    def _brought(self, database: IndexDatabase, state: IndexState, snapshot: Snapshot | None) -> IndexState | None:
        """The state after the index was brought to the snapshot; None where it must be built, also because what it has
        cannot be read, or be written to its disk."""
        snapshot_id = 0 if snapshot is None else snapshot.id
        if not state.snapshot_id <= snapshot_id <= state.snapshot_id + SNAPSHOTS_MAX or not self._is_in_history(state):
            return None
        try:
            since = [self._store.snapshots.snapshot(each) for each in range(state.snapshot_id + 1, snapshot_id + 1)]
            changes = changed_keys(self._store, since, self._share, row_count_max=max(CHANGES_MAX, state.key_count))
        except (NotFoundError, MissingFileError):  # they have expired
            return None
        if changes is None:
            return None
        after = replace(state, snapshot_id=snapshot_id, snapshot_uuid=None if snapshot is None else snapshot.uuid)
        if not any(map(moves_keys, since)):
            return after
        try:
            return self._applied(database, after, changes)
        except BrokenIndexError as error:
            self._note_broken(error)
            return None

    def _applied(self, database: IndexDatabase, state: IndexState, changes: ChangedKeys) -> IndexState:
        keys: list[bytes] = changes.keys.to_numpy(zero_copy_only=False).tolist()
        counts = dict(state.counts)
        unasked = [key for key in keys if key not in self._asked]
        before = self._asked | dict(zip(unasked, database.find(unasked), strict=True))
        self._asked = {}
        for value in map(before.__getitem__, keys):
            if value is not None:
                bucket_id = bucket_of(value)
                counts[bucket_id] = counts.get(bucket_id, 0) - 1
        values = np.array([place_value(*place) for place in changes.places], dtype=object)
        is_there = changes.place_of_key != GONE
        there = np.flatnonzero(is_there).tolist()
        for place, count in enumerate(np.bincount(changes.place_of_key[is_there], minlength=len(values)).tolist()):
            bucket_id = changes.places[place][0]
            counts[bucket_id] = counts.get(bucket_id, 0) + count
        state = replace(state, counts={bucket_id: count for bucket_id, count in counts.items() if count > 0})
        database.apply(
            [keys[index] for index in there],
            values[changes.place_of_key[is_there]].tolist(),
            [keys[index] for index in np.flatnonzero(~is_there).tolist()],
            state,
        )
        return state

    def _built(self, database: IndexDatabase, snapshot: Snapshot | None) -> IndexState:
        self._sweep()
        progress = LoggedBuild(self._store.location, self._share)
        try:
            counts = build_index(
                database, self._store, snapshot, self._share, since_s=self._since_s(), progress=progress
            )
        except MissingFileError:
            # A snapshot that is known here may have expired long ago; then this is a `NotFoundError`.
            if snapshot is not None:
                self._store.snapshots.fresh(snapshot.id)
            raise
        state = IndexState(
            self._store.location,
            self._created_ms(),
            (self._share.number, self._share.count),
            self._ttl_ms,
            0 if snapshot is None else snapshot.id,
            None if snapshot is None else snapshot.uuid,
            counts,
        )
        database.settle(state)
        progress.ended(state.key_count)
        return state

    def _is_of_table(self, state: IndexState) -> bool:
        share = (self._share.number, self._share.count)
        return (state.table, state.created_ms, state.share, state.ttl_ms) == (
            self._store.location,
            self._created_ms(),
            share,
            self._ttl_ms,
        )

    def _is_later(self, state: IndexState, snapshot: Snapshot | None) -> bool:
        return state.snapshot_id > (0 if snapshot is None else snapshot.id) and self._is_in_history(state)

    def _is_in_history(self, state: IndexState) -> bool:
        """Whether the snapshot that the index stands for is still the one it was: a rollback uses ids again."""
        if not state.snapshot_id:
            return True
        found = self._store.snapshots.find(state.snapshot_id)
        return found is not None and found.uuid == state.snapshot_uuid

    def _created_ms(self) -> int:
        return self._store.schemas.schema(0).time_ms

    def _since_s(self) -> int:
        return 0 if self._ttl_ms is None else max(0, self._store.env.now_ms() - self._ttl_ms) // 1000

    @property
    def _cache(self) -> LocalCache:
        return local_cache(self._store, FOLDER, CoreOptions.cross_partition_upsert_index_dir)

    @property
    def _table_folder(self) -> str:
        return hashlib.blake2b(self._store.location.encode(), digest_size=12).hexdigest()

    def _sweep(self) -> None:
        """Removes indexes that nobody has used for long."""
        now_ms = self._store.env.now_ms()
        for index in self._cache.files(now_ms):
            if index.name.endswith(LOCK_SUFFIX) or now_ms - index.used_ms <= RETENTION_MS:
                continue
            with suppress(StorageError), self._cache.locked(index.name) as is_ours:
                if is_ours:
                    self._cache.remove(index.name)
