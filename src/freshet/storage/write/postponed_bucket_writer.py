"""The writer of rows that wait for their bucket (`bucket=-2`), in one partition: into files as they come.

Nothing is sorted, merged, numbered or looked up, and no changelog is made: the compaction that puts the rows into
buckets does all that. Files are Avro, whatever `file.format` says, where Avro can hold the columns; they have no
statistics. Their name says who wrote them:

    data--u-<commit user>-s-<number of the writer>-w-<uuid>-<n>.avro

Rows of files whose names agree up to `-w-` are merged in the order in which the files were made, and those of others
in no order that a program can rely on: so all rows of a key go to the writer of one number. The name is parsed, so the
user is spelled there with letters, digits and underscores.

Source: FORMAT.md §1, §7.6.
"""

from __future__ import annotations

import re
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from freshet.storage.files.data_file_paths import FileTraits, data_file_traits
from freshet.storage.files.data_file_writer import KeyValueFileWriter
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import FileId, FileSource
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.schema.file_formats import can_be_avro
from freshet.storage.write.bucket_state import BucketState
from freshet.storage.write.bucket_writer import BucketTools
from freshet.storage.write.compaction_limit import CompactionTime
from freshet.storage.write.records import Kinds
from freshet.storage.write.unmerged_bucket_writer import UnmergedBucketWriter

NO_NUMBER: Final = -1
"""The sequence number of rows that wait: the writer of their bucket numbers them."""

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Staging:
    """Who writes rows that wait: a commit user, and the number of one of its writers."""

    commit_user: str
    number: int = 0

    def traits(self, store: TableStore) -> FileTraits:
        """How files of waiting rows are named and encoded."""
        options, traits = store.options, data_file_traits(store.options, 0)
        prefix = f"{options.data_file_prefix}-u-{_UNNAMED.sub('_', self.commit_user)}-s-{self.number}-w-"
        if not can_be_avro(store.schema, traits.compression):
            return replace(traits, prefix=prefix)
        file_format = dict(options.file_format_per_level).get("0", "avro")
        stats_mode = dict(options.metadata_stats_mode_per_level).get("0", "none")
        return replace(traits, prefix=prefix, file_format=file_format.lower(), stats_mode=stats_mode)


class PostponedBucketWriter(UnmergedBucketWriter[KeyValueFileWriter]):
    """Of the rows of a partition that wait."""

    def __init__(
        self,
        tools: BucketTools,
        staging: Staging,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        state: BucketState,
    ) -> None:
        super().__init__(tools, partition, bucket, total_buckets)
        self._traits = staging.traits(tools.store)

    def write(self, rows: pa.Table, kinds: Kinds | None) -> None:
        codes = np.zeros(rows.num_rows, np.int8) if kinds is None else kinds
        self._buffer(rows.append_column(pa.field(VALUE_KIND_COLUMN, pa.int8(), nullable=False), pa.array(codes)))

    def _new_file(self) -> KeyValueFileWriter:
        level_0 = (self._store, self._partition, self._bucket, 0)
        return KeyValueFileWriter(*level_0, FileSource.APPEND, traits=self._traits)

    def _write_to(self, file: KeyValueFileWriter, rows: pa.Table) -> None:
        number = pa.field(SEQUENCE_NUMBER_COLUMN, pa.int64(), nullable=False)
        numbers = pa.array(np.full(rows.num_rows, NO_NUMBER, np.int64))
        file.write(rows.add_column(0, number, numbers))

    def renumber(self) -> None:
        pass

    def _shift(self, by: int) -> None:
        raise AssertionError("rows that wait have no numbers")

    def compact(self, *, full: bool, executor: Executor | None = None) -> bool:
        return False

    def compact_files(self, inputs: frozenset[FileId], output_level: int, executor: Executor | None = None) -> bool:
        return False

    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        pass

    @property
    def has_newer_schema(self) -> bool:
        return False

    def take_message(self) -> CommitMessage:
        return self._increment.take_message(self._partition, self._bucket, self._total_buckets)

    def rebase(self, state: BucketState) -> None:
        pass
