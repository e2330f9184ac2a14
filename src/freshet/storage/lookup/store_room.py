"""Room for lookup stores on the local disk: within `lookup.cache-max-disk-size`, and never the last of the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from freshet.storage.exceptions import RetryableError
from freshet.storage.io.local_cache import LocalCache
from freshet.storage.lookup.open_stores import SpareRoom, stores_of
from freshet.storage.metadata.table_store import TableStore

NOTE_MS: Final = 60 * 1000
"""Use of a store is noted on disk this often."""
BUSY_MS: Final = 2 * NOTE_MS
OTHERS_RETENTION_MS: Final = 24 * 60 * 60 * 1000
FREE_SHARE: Final = 2
"""A store is made where so many times its bytes are free."""
SPARE_PARTS: Final = 16
SPARE_MS: Final = 60_000
"""For so long, this part of the room that was found is taken without another look; others take theirs meanwhile."""


@dataclass(frozen=True, slots=True)
class StoreRoom:
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
