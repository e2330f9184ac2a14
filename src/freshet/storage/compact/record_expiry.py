"""Which rows a compaction of a keyed table leaves out because they are old: `record-level.expire-time`.

A row that is rewritten is kept while

    now <= time + record-level.expire-time        in whole seconds

| `record-level.time-field` | time of a row |
|---|---|
| INT | seconds since 1970 |
| BIGINT | the same; milliseconds from 1,000,000,000,000 on |
| TIMESTAMP, TIMESTAMP_LTZ | that time, without a zone taken as UTC; milliseconds are cut off |
| NULL | none: the row is kept |

A file whose smallest time is too old is rewritten where it would only change its level, and by a full compaction also
where it would stay. Of files without statistics of the column nothing is known: they move as they are. A row that is
left out is to the merge, and to the changelog, as if it had never been there; no -D is emitted for it. Readers, flushes
and tables without a key know nothing of this.

Source: MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.stats import decode_stats
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta
from freshet.storage.schema.record_expiry import TIME_ROOTS, time_column

MILLISECONDS_FROM: Final = 1_000_000_000_000
"""A BIGINT from here on counts milliseconds."""
_TICKS_PER_MS: Final = {"us": 1000, "ns": 1_000_000}

R = TypeVar("R", pa.Table, pa.RecordBatch)


class RecordExpiry(Frozen):
    """The rule at one time: rows whose time is before `oldest`, seconds since 1970, are too old."""

    store: TableStore
    column: str
    oldest: int

    def live(self, rows: R) -> R:
        """The rows without those that are too old."""
        is_old = self._is_old(rows.column(self.column))
        return rows.filter(pa.array(~is_old)) if is_old.any() else rows

    def live_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batch by batch."""
        return map(self.live, batches)

    def has_expired(self, file: DataFileMeta) -> bool:
        """True where the statistics of the file say that its smallest time is too old."""
        if file.value_stats.min_values == EMPTY_ROW:
            return False
        schema = self.store.schema
        if file.schema_id != schema.id:
            schema = self.store.schemas.schema(file.schema_id)
        written = schema.by_id.get(self.store.schema.by_name[self.column].id)
        names = schema.column_names if file.value_stats_cols is None else file.value_stats_cols
        if written is None or written.name not in names or written.type.root not in TIME_ROOTS:
            return False
        smallest = decode_stats(file.value_stats, schema.types_of(names))[list(names).index(written.name)].min_value
        return bool(self._is_old(pa.array([smallest], arrow_type(written.type)))[0])

    def _is_old(self, times: pa.Array[Any] | pa.ChunkedArray[Any]) -> npt.NDArray[np.bool_]:
        is_known = times.is_valid().to_numpy(zero_copy_only=False)
        is_old: npt.NDArray[np.bool_] = is_known & (_seconds(times) < self.oldest)
        return is_old


def record_expiry(store: TableStore) -> RecordExpiry | None:
    """The rule of a table now; None where its rows do not expire.

    Raises `InvalidRequestError` where the options name no column that holds a time.
    """
    column = time_column(store.schema, store.options)
    expire_ms = store.options.record_level_expire_time_ms
    if column is None or expire_ms is None:
        return None
    return RecordExpiry(store, column, store.env.now_ms() // 1000 - expire_ms // 1000)


def expired_files(store: TableStore, files: Iterable[DataFileMeta]) -> frozenset[str]:
    """Names of the files that hold rows which are too old, as far as statistics say."""
    expiry = record_expiry(store)
    if expiry is None:
        return frozenset()
    return frozenset(file.file_name for file in files if expiry.has_expired(file))


def _seconds(times: pa.Array[Any] | pa.ChunkedArray[Any]) -> npt.NDArray[np.int64]:
    """Seconds since 1970, cut towards zero as Java divides; anything for NULL."""
    values: npt.NDArray[np.int64] = times.cast(pa.int64()).fill_null(0).to_numpy()
    if pa.types.is_int32(times.type):
        return values
    if pa.types.is_int64(times.type):
        return np.where(values >= MILLISECONDS_FROM, values // 1000, values)
    if times.type.unit == "s":
        return values
    milliseconds = values // _TICKS_PER_MS.get(times.type.unit, 1)
    return np.where(milliseconds < 0, -(-milliseconds // 1000), milliseconds // 1000)
