"""How many buckets each partition of a table has.

    files of the partition    say it (`_TOTAL_BUCKETS` of their manifest entries), all of them the same number
    no files                  the option `bucket`

The two differ only where the option was changed and partitions were rewritten one by one since (a rescale by Apache
Paimon). While no schema of the table has another number, nothing is read; a partition that turns out to be written with
another number all the same (`note`) counts with that.

Source: FORMAT.md §8; MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from freshet.storage.exceptions import NotFoundError
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot


class BucketCounts:
    """Numbers of buckets by partition, at one snapshot. Used by one thread."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        self.default = store.options.bucket
        self._store = store
        self._snapshot = snapshot
        self._found: dict[bytes, int] = {}
        self._may_differ: bool | None = None

    def of(self, partitions: Sequence[bytes]) -> list[int]:
        """The number of each partition, in their order."""
        unknown = {partition for partition in partitions if partition not in self._found}
        if unknown and self._snapshot is not None and self._was_changed():
            entries = live_entries(self._store.manifests, self._snapshot, partition=unknown.__contains__)
            self._found.update(dict.fromkeys(unknown, self.default))
            self._found.update({entry.partition: entry.total_buckets for entry in entries})
        return [self._found.get(partition, self.default) for partition in partitions]

    def note(self, partition: bytes, total_buckets: int) -> None:
        """The partition was found to be written with this number."""
        self._found[partition] = total_buckets

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Forgets what belongs to another snapshot."""
        self._snapshot = snapshot
        self._found.clear()

    def _was_changed(self) -> bool:
        if self._may_differ is None:
            self._may_differ = self.default > 0 and any(
                self._option_at(number) != self.default for number in range(self._store.schema.id)
            )
        return self._may_differ

    def _option_at(self, schema_id: int) -> int | None:
        try:
            text = self._store.schemas.schema(schema_id).options.get("bucket", "")
        except NotFoundError:
            return None
        return int(text) if text.lstrip("-").isdigit() else None
