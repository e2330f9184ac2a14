"""A table in a folder with an in-memory committer: messages become live files without manifests or snapshots."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.merge.engine import merge_function, row_order
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.merge_reader import merge_section
from freshet.storage.merge.row_levels import with_level
from freshet.storage.merge.sorted_runs import interval_partition, older_first
from freshet.storage.metadata.live_files import NO_FILES, LiveFiles, files_after, grouped_by_bucket
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.arrow_types import fields_from_arrow
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import MergeEngine
from freshet.storage.paths import TablePaths
from freshet.storage.write.bucket_state import BucketStates
from freshet.storage.write.task_writer import TaskWriter
from tests.kit.hand_made import data_files_on_disk

KEYED = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@dataclass
class _CommittedFiles:
    """In place of the index of live files: what was committed at each snapshot."""

    states: dict[int, LiveFiles] = field(default_factory=lambda: {0: NO_FILES})

    def at(self, snapshot: Snapshot | None) -> LiveFiles:
        return NO_FILES if snapshot is None else self.states[snapshot.id]

    def of_buckets(self, snapshot: Snapshot | None, _: Collection[BucketId]) -> LiveFiles:
        return self.at(snapshot)


def committed(base: LiveFiles, number: int, entries: Sequence[ManifestEntry]) -> LiveFiles:
    """The live files once a commit with these entries has followed."""
    changed = {
        bucket: files_after(base.by_bucket.get(bucket, {}), delta)
        for bucket, delta in grouped_by_bucket(entries).items()
    }
    return LiveFiles(number, {bucket: files for bucket, files in {**base.by_bucket, **changed}.items() if files})


class WrittenTable:
    """A table of which every commit is taken as it comes."""

    def __init__(
        self,
        folder: Path,
        *,
        arrow: pa.Schema = KEYED,
        keys: Sequence[str] = ("k",),
        partitions: Sequence[str] = (),
        env: Env | None = None,
        **options: str,
    ) -> None:
        self.env = env or Env(MemoryFileIO(), str(folder))
        spelled = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
        spelled.setdefault("bucket", "1")
        fields, highest = fields_from_arrow(arrow, keys, partitions)
        schema = TableSchema(0, fields, highest, tuple(partitions), tuple(keys), spelled)
        location = str(folder / "t")
        FileClaims(self.env.file_io, TablePaths(location)).claim_schema(schema)
        self.committed = _CommittedFiles()
        self.store: TableStore = replace(open_table_store(self.env, location), live=self.committed)  # type: ignore[arg-type]
        self.snapshot: Snapshot | None = None
        self.messages: list[CommitMessage] = []

    def writer(self, **options: Any) -> TaskWriter:
        return TaskWriter(self.store, base_snapshot=self.snapshot, states=BucketStates(), **options)

    def compact_all(self, writer: TaskWriter) -> None:
        writer.compact_buckets(sorted(self.committed.at(self.snapshot).by_bucket), full=True)

    def commit(self, messages: Sequence[CommitMessage], *, with_compaction: bool = True) -> Snapshot:
        """Applies the messages: the new files, then the compaction."""
        self.messages = list(messages)
        entries: list[ManifestEntry] = []
        for message in messages:
            entries += _entries(message, EntryKind.ADD, message.new_files)
            if with_compaction:
                entries += _entries(message, EntryKind.ADD, message.compact_after)
                entries += _entries(message, EntryKind.DELETE, message.compact_before)
        number = 1 if self.snapshot is None else self.snapshot.id + 1
        base = self.committed.at(self.snapshot)
        for entry in entries:
            assert self.env.file_io.exists(self.path_of(entry)) or entry.kind is EntryKind.DELETE
        self.committed.states[number] = committed(base, number, entries)
        self.snapshot = Snapshot(number, 0, "", "", "test", number, CommitKind.APPEND, 0, 0, 0)
        return self.snapshot

    def path_of(self, entry: ManifestEntry) -> str:
        return self.store.data_file(entry.partition, entry.bucket, entry.file.file_name)

    def files(self) -> list[DataFileMeta]:
        return [entry.file for entry in self.committed.at(self.snapshot).entries()]

    def key_range(self, file: DataFileMeta) -> tuple[Any, Any]:
        """Smallest and largest key, comparable."""
        comparator = KeyComparator(self.store.key_types)
        return comparator.sort_key(file.min_key), comparator.sort_key(file.max_key)

    def data_files_on_disk(self) -> set[str]:
        return {f"{name}.parquet" for name in data_files_on_disk(self.store)}

    def rows(self) -> list[dict[str, Any]]:
        """Merged rows of all buckets, bucket by bucket, in key order."""
        batches: list[pa.RecordBatch] = []
        live = self.committed.at(self.snapshot)
        comparator = KeyComparator(self.store.key_types)
        for partition, bucket in sorted(live.by_bucket):
            function = merge_function(self.store.schema, self.store.options)
            is_first_row = self.store.options.merge_engine is MergeEngine.FIRST_ROW
            files = [file for file in live.files_of(partition, bucket) if file.level or not is_first_row]
            for section in interval_partition(files, comparator):
                runs = [
                    self._read(partition, bucket, run.files, has_levels=function.reads_levels)
                    for run in older_first(section)
                ]
                order = row_order(self.store.schema, self.store.options)
                batches += merge_section(runs, order, function, drop_delete=True)
        rows = [row for batch in batches for row in batch.to_pylist()]
        return [{name: row[name] for name in self.store.schema.column_names} for row in rows]

    def stored(self, file: DataFileMeta, bucket: int = 0) -> list[tuple[Any, ...]]:
        """Rows of one file of an unpartitioned table: sequence number, kind, columns."""
        (entry,) = [e for e in self.committed.at(self.snapshot).entries() if e.file == file]
        batches = self._read(entry.partition, entry.bucket, [file])
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def _read(
        self, partition: bytes, bucket: int, files: Sequence[DataFileMeta], *, has_levels: bool = False
    ) -> list[pa.RecordBatch]:
        columns = self.store.schema.column_names
        return [
            with_level(batch, file.level) if has_levels else batch
            for file in files
            for batch in DataFileRead(
                self.store, partition, bucket, file, columns, system_columns=True, batch_rows=1024
            ).batches()
        ]


def _entries(message: CommitMessage, kind: EntryKind, files: Sequence[DataFileMeta]) -> list[ManifestEntry]:
    return [ManifestEntry(kind, message.partition, message.bucket, message.total_buckets, file) for file in files]
