"""Has nobody changed the keys that an edit writes, since the snapshot that it was computed from?

An edit reads rows and writes others in their place. What others commit in between may be of the same keys: the edit
would put back a value that is no longer there, or delete a row that it has not seen. So each round of its commit looks
at what was added since:

| since the snapshot | then |
|---|---|
| rows of other keys | the edit counts as before them |
| rows of its keys | `KeysChangedError` with all keys that were written since: those are computed again |
| files were deleted by an overwrite, or snapshots have expired | `OutdatedPlanError`: everything is computed again |
| compactions | nothing: no row changes |

Only the key columns of the new files are read, and of the own ones in the same buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.commit.table_view import TableView
from freshet.storage.edits.outdated_plan import KeysChangedError, OutdatedPlanError
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot


class KeyCheck:
    """A `RoundCheck` for the messages of one edit that was computed from a snapshot."""

    def __init__(self, store: TableStore, upon: Snapshot | None, messages: Sequence[CommitMessage]) -> None:
        self._store = store
        self._checked_id = 0 if upon is None else upon.id
        self._added: list[ManifestEntry] = []
        self._seen_count = 0
        """Of the files added since, those that share no key with the edit."""
        self.messages = messages

    def __call__(self, view: TableView) -> None:
        """Looks at what was committed since the last round."""
        latest = view.latest
        if latest is None or latest.id <= self._checked_id:
            return
        for snapshot_id in range(self._checked_id + 1, latest.id + 1):
            self._added += self._added_by(snapshot_id)
        self._checked_id = latest.id
        if any(
            self._shares_keys(bucket) for bucket in sorted({each.bucket_id for each in self._added[self._seen_count :]})
        ):
            raise KeysChangedError(
                f"table {self._store.name}: others have changed rows of this edit while it was made",
                distinct_keys(self._store, self._added),
                latest,
            )
        self._seen_count = len(self._added)

    def _added_by(self, snapshot_id: int) -> list[ManifestEntry]:
        try:
            snapshot = self._store.snapshots.snapshot(snapshot_id)
            if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE) or snapshot.is_rescale:
                return []
            entries = delta_entries(self._store.manifests, snapshot)
        except NotFoundError as error:
            raise OutdatedPlanError(
                f"table {self._store.name}: snapshots have expired since this edit was begun"
            ) from error
        if any(entry.kind is EntryKind.DELETE for entry in entries) or snapshot.commit_kind is CommitKind.OVERWRITE:
            raise OutdatedPlanError(f"table {self._store.name}: rows were overwritten while this edit was made")
        return entries

    def _shares_keys(self, bucket: BucketId) -> bool:
        own = [file for each in self.messages if each.bucket_id == bucket for file in each.new_files]
        if not own:
            return False
        names = list(self._store.schema.trimmed_primary_keys)
        mine = _keys(self._store, [(bucket, file) for file in own], names)
        others = _keys(
            self._store, [(each.bucket_id, each.file) for each in self._added if each.bucket_id == bucket], names
        )
        return bool(mine.join(others, names, join_type="left semi").num_rows)


def distinct_keys(store: TableStore, entries: Iterable[ManifestEntry]) -> pa.Table:
    """The keys in some files, each once."""
    names = list(store.schema.primary_keys)
    keys = _keys(store, [(each.bucket_id, each.file) for each in entries], names)
    return keys.group_by(names).aggregate([])


def check_once(store: TableStore, rows: pa.Table) -> None:
    """Raises `InvalidRequestError` for a key that two of the rows have."""
    keys = list(store.schema.primary_keys)
    twice = rows.group_by(keys).aggregate([([], "count_all")]).filter(pc.field("count_all") > 1)
    if twice.num_rows:
        key = {name: twice.column(name)[0].as_py() for name in keys}
        raise InvalidRequestError(
            f"the key {key} is in the rows for {store.name} {twice.column('count_all')[0].as_py()} times; leave one of "
            "them, else it is chance which one counts",
            table=store.name,
        )


def without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is not among these, in their order."""
    return _joined(rows, keys, "left anti")


def with_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is among these, in their order."""
    return _joined(rows, keys, "left semi")


_ROW: Final = "\0row"
"""No name of a column."""


def _joined(rows: pa.Table, keys: pa.Table, kind: str) -> pa.Table:
    """By positions: a join takes no nested columns along."""
    names = keys.column_names
    numbered = rows.select(names).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    kept = numbered.join(keys, names, join_type=kind).column(_ROW)
    return rows.take(kept.combine_chunks().sort()) if len(kept) else rows.slice(0, 0)


def _keys(store: TableStore, files: Collection[tuple[BucketId, DataFileMeta]], names: Sequence[str]) -> pa.Table:
    schema = pa.schema([arrow_schema(store.schema).field(name) for name in names])
    return pa.Table.from_batches(
        [
            batch.cast(schema)
            for (partition, bucket), file in files
            for batch in read_data_file(store, partition, bucket, file, list(names))
        ],
        schema,
    )
