"""What one process knows of lookup stores: those that it has open, and what reading data files has cost it.

They have room on the local disk (`StoreRoom`): within `lookup.cache-max-disk-size`, and never the last of the disk.

The stores of large files are made in the background of lookups, which read the data files meanwhile (`build_later`).
The file whose reading has cost this process the most comes first: with it, the most is saved. One store is made at a
time, in one thread of each process, a few rows at each step; of several processes that want one store, one makes it.
What is unfinished when the program ends is given up.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from freshet._frozen import Frozen
from freshet.storage.exceptions import RetryableError, StorageError
from freshet.storage.io.env import Env
from freshet.storage.io.local_cache import LocalCache
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.lookup.lookup_store import LookupStore
from freshet.storage.metadata.table_store import TableStore

SEEN_MAX: Final = 100_000


@dataclass(slots=True)
class OpenStore:
    """A store, and when its use was last noted on disk."""

    file: LookupStore
    noted_ms: int


@dataclass(slots=True)
class SpareRoom:
    """Room that need not be looked for until then."""

    bytes_left: int
    until_ms: int


@dataclass(slots=True)
class ProcessStores:
    """What one process knows of the stores below all roots."""

    process_id: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: OrderedDict[str, OpenStore] = field(default_factory=OrderedDict)
    read_s: OrderedDict[str, float] = field(default_factory=OrderedDict)
    idle_until_ms: dict[str, int] = field(default_factory=dict)
    spare: dict[str, SpareRoom] = field(default_factory=dict)
    """By root: room for stores that need not be looked for."""
    seen: SizedCache[str, set[str]] = field(default_factory=lambda: SizedCache(SEEN_MAX))
    """By folder: the names that stores of the files of a bucket had when it was looked at last."""
    wanted: dict[str, Callable[[], Iterator[None]]] = field(default_factory=dict)
    """Stores to be made in the background (`build_later`)."""


_by_env: WeakKeyDictionary[Env, ProcessStores] = WeakKeyDictionary()


def forget_open_stores(env: Env) -> None:
    """Lets go of all stores and costs, as if the process had just started."""
    _by_env.pop(env, None)


def stores_of(env: Env) -> ProcessStores:
    """The stores of this process."""
    stores = _by_env.setdefault(env, ProcessStores())
    if stores.process_id != os.getpid():  # a lock of the parent may be held by a thread that is not here
        stores = _by_env[env] = ProcessStores()
    return stores


NOTE_MS: Final = 60 * 1000
"""Use of a store is noted on disk this often."""
BUSY_MS: Final = 2 * NOTE_MS
OTHERS_RETENTION_MS: Final = 24 * 60 * 60 * 1000
FREE_SHARE: Final = 2
"""A store is made where so many times its bytes are free."""
SPARE_PARTS: Final = 16
SPARE_MS: Final = 60_000
"""For so long, this part of the room that was found is taken without another look; others take theirs meanwhile."""


class StoreRoom(Frozen):
    """The room below one root, asked for by one table; `evict` removes a store of a name."""

    table: TableStore
    cache: LocalCache
    table_folder: str
    evict: Callable[[str], None]

    def has(self, needed_bytes: int, now_ms: int, *, may_evict: bool) -> bool:
        """Whether a store of this size has room; False when others need it.

        Stores that nobody has used for long go on the way, with `may_evict` also those that were used longest ago.
        Raises `RetryableError` when the disk is too full.
        """
        return self._has_spare(needed_bytes, now_ms) or self._made(needed_bytes, now_ms, may_evict=may_evict)

    def has_unasked(self, needed_bytes: int, now_ms: int) -> bool:
        """The same for a large store that nobody has asked for yet: no other one goes for it, and all together take no
        more of the disk than is left free."""
        if self._has_spare(needed_bytes, now_ms):
            return True
        taken = sum(file.size_bytes for file in self.cache.files(now_ms)) + needed_bytes
        return taken <= min(self.table.options.lookup_cache_max_disk_size_bytes, self.cache.free_bytes() - needed_bytes)

    def _made(self, needed_bytes: int, now_ms: int, *, may_evict: bool) -> bool:
        """Removes what is too old or too much."""
        options = self.table.options
        retention_ms = options.lookup_cache_file_retention_ms
        kept = []
        for file in sorted(self.cache.files(now_ms), key=lambda file: file.used_ms):
            is_ours = file.name.startswith(f"{self.table_folder}/")
            limit_ms = retention_ms if is_ours else max(retention_ms, OTHERS_RETENTION_MS)
            if now_ms - file.used_ms > limit_ms:
                self.evict(file.name)
            else:
                kept.append(file)
        excess = sum(file.size_bytes for file in kept) + needed_bytes - options.lookup_cache_max_disk_size_bytes
        for file in kept:
            if excess <= 0 or not may_evict or now_ms - file.used_ms <= BUSY_MS:
                break
            self.evict(file.name)
            excess -= file.size_bytes
        if excess > 0:
            return False
        free_bytes = self.cache.free_bytes()
        if free_bytes < FREE_SHARE * needed_bytes:
            raise RetryableError(f"its disk has {free_bytes} bytes left, and a store of {needed_bytes} is to be made")
        taken_bytes = options.lookup_cache_max_disk_size_bytes + excess
        spare_bytes = min(-excess, (free_bytes - taken_bytes) // FREE_SHARE - needed_bytes) // SPARE_PARTS
        stores_of(self.table.env).spare[self.cache.root] = SpareRoom(spare_bytes, now_ms + SPARE_MS)
        return True

    def _has_spare(self, needed_bytes: int, now_ms: int) -> bool:
        """True when a look at the folder a moment ago has found that there is room for many of this size.

        To look costs as much as to write a small store: all stores below the root are listed.
        """
        stores = stores_of(self.table.env)
        with stores.lock:
            spare = stores.spare.get(self.cache.root)
            if spare is None or now_ms >= spare.until_ms or spare.bytes_left < needed_bytes:
                return False
            spare.bytes_left -= needed_bytes
            return True


_LOG: Final = logging.getLogger(__name__)


def build_later(env: Env, name: str, make: Callable[[], Iterator[None]]) -> None:
    """Has a store made; `name` is that under which `ProcessStores.read_s` has what reading has cost."""
    stores = stores_of(env)
    with stores.lock:
        stores.wanted[name] = make
    env.run_gradually("lookup stores", partial(_make_all, env))


def forget_wanted(env: Env, folder: str, kept: Collection[str]) -> None:
    """Stores below a folder are no longer wanted, but for these names: their files have left the table."""
    stores = stores_of(env)
    with stores.lock:
        for name in [name for name in stores.wanted if name.startswith(f"{folder}/") and name not in kept]:
            del stores.wanted[name]


def _make_all(env: Env) -> Iterator[None]:
    while True:
        stores = stores_of(env)
        with stores.lock:
            if not stores.wanted:
                return
            name = max(stores.wanted, key=lambda name: stores.read_s.get(name, 0.0))
            make = stores.wanted.pop(name)
        try:
            yield from make()
        except StorageError as error:  # whoever reads the data file meets it too, and says so
            _LOG.info("the lookup store %s is not made: %s", name, error)
