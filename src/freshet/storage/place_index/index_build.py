"""Builds the index of a share from the table, and says how far it is.

    a thread      reads the keys of the next piece, merged and sorted (`table_keys`)
    the caller    writes the piece before it into a table file, which RocksDB takes over as it is

To build 10 M keys of 8 bytes takes 3.5 s of processor time, 0.6 s of it in the thread where nothing has to be merged.
Writing holds the lock of the interpreter, so that more threads bring nothing; other processes build other shares.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from freshet.storage.merge.read_ahead import made_ahead
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.place_index.index_database import IndexDatabase
from freshet.storage.place_index.key_places import place_value
from freshet.storage.place_index.key_rows import KeyShare
from freshet.storage.place_index.table_keys import PlacedKeys, table_keys

FIRST_REPORT_S: Final = 5.0
REPORT_EVERY_S: Final = 10.0

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far the index of a share is."""

    rows_done: int
    """Rows of the table that were read, those of other shares among them."""
    rows_total: int
    """As the files of the table say: those that merging leaves out count."""


BuildCallback = Callable[[BuildProgress], None]
"""Called in another thread, each few thousand rows."""


def build_index(
    database: IndexDatabase,
    store: TableStore,
    snapshot: Snapshot | None,
    share: KeyShare,
    *,
    since_s: int,
    progress: BuildCallback,
) -> dict[BucketId, int]:
    """Puts the keys of the share into an empty index, and gives how many are in each bucket; settles nothing."""
    counts: dict[BucketId, int] = {}

    def note(rows_done: int, rows_total: int) -> None:
        progress(BuildProgress(rows_done, rows_total))

    with _ahead(table_keys(store, snapshot, share, since_s=since_s, progress=note)) as pieces:
        for piece in pieces:
            values = np.array([place_value(*place) for place in piece.places], dtype=object)
            database.load(piece.keys.to_numpy(zero_copy_only=False).tolist(), values[piece.place_of_key].tolist())
            for place, count in enumerate(np.bincount(piece.place_of_key, minlength=len(values)).tolist()):
                bucket_id = piece.places[place][0]
                counts[bucket_id] = counts.get(bucket_id, 0) + count
    return counts


@contextmanager
def _ahead(pieces: Iterator[PlacedKeys]) -> Iterator[Iterator[PlacedKeys]]:
    """One piece ahead; when the block ends nothing is read any more."""
    with ThreadPoolExecutor(1, "freshet-index") as executor:
        yield made_ahead(pieces, executor)


class LoggedBuild:
    """Says in the log how far an index is whose building takes long: a `BuildCallback`."""

    def __init__(self, table: str, share: KeyShare) -> None:
        self._name = table if share.count == 1 else f"{table}, share {share.number + 1} of {share.count}"
        self._started_s = time.monotonic()
        self._next_s = self._started_s + FIRST_REPORT_S
        self._level = logging.INFO

    def __call__(self, progress: BuildProgress) -> None:
        """From time to time a line."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s, self._level = now_s + REPORT_EVERY_S, logging.WARNING
        done, total = progress.rows_done, progress.rows_total
        _LOG.warning(
            "%s: the index of its keys is built: %d of %d rows were read (%d %%)",
            self._name,
            done,
            total,
            100 * done // max(1, total),
        )

    def ended(self, key_count: int) -> None:
        """The last line, for those who have seen others."""
        taken_s = time.monotonic() - self._started_s
        if key_count:
            _LOG.log(self._level, "%s: built the index of %d keys in %.1f s", self._name, key_count, taken_s)
