"""Rows that tasks have written without a shuffle before: each may have rows of every bucket, and of every key.

The tasks write level 0 alone. Of two rows of a key the one with the larger number is the later one, and tasks number
their rows without knowing of one another: so a key that two of them hold is refused, unless `sequence.field` says which
of its rows is the later one. Only key columns are read, of buckets that several tasks have written, and in passes that
bound how many are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.commit.committer import discard_messages
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId

PASS_ROWS: Final = 4_000_000
"""Keys that are in memory at a time."""
_TASK: Final = "\0task"
"""No name of a column."""


def is_written_by_tasks(store: TableStore) -> bool:
    """Whether tasks may write level 0 without a shuffle: where no row is looked up, and a row says its bucket."""
    options = store.options
    return not options.has_primary_key or (options.bucket > 0 and not options.needs_lookup)


def joined_rows(store: TableStore, tasks: Sequence[Sequence[CommitMessage]]) -> list[CommitMessage]:
    """One message for each bucket, of those of all tasks in their order.

    Removes the files and raises `InvalidRequestError` for a key that several tasks hold, where nothing says which of
    its rows is the later one.
    """
    messages = [message for task in tasks for message in task]
    if store.options.has_primary_key:
        try:
            _check_keys(store, tasks)
        except InvalidRequestError:
            discard_messages(store, messages)
            raise
    joined: dict[BucketId, CommitMessage] = {}
    for message in messages:
        before = joined.get(message.bucket_id)
        joined[message.bucket_id] = message if before is None else _joined(store, before, message)
    return list(joined.values())


def _joined(store: TableStore, before: CommitMessage, message: CommitMessage) -> CommitMessage:
    files = message.new_files
    if store.options.numbers_rows and not store.options.has_primary_key:  # only entries have these numbers
        by = max(file.max_sequence_number for file in before.new_files) + 1
        by -= min(file.min_sequence_number for file in files)
        files = tuple(
            replace(
                file,
                min_sequence_number=file.min_sequence_number + by,
                max_sequence_number=file.max_sequence_number + by,
            )
            for file in files
        )
    ids = [each.numbered_at for each in (before, message) if each.numbered_at is not None]
    return replace(
        before,
        new_files=(*before.new_files, *files),
        changelog_files=(*before.changelog_files, *message.changelog_files),
        numbered_at=min(ids, default=None),
    )


def _check_keys(store: TableStore, tasks: Sequence[Sequence[CommitMessage]]) -> None:
    files: dict[BucketId, list[tuple[int, DataFileMeta]]] = {}
    for task, messages in enumerate(tasks):
        for message in messages:
            files.setdefault(message.bucket_id, []).extend((task, file) for file in message.new_files)
    for bucket, written in sorted(files.items()):
        if len({task for task, _ in written}) > 1:
            passes = -(-sum(file.row_count for _, file in written) // PASS_ROWS)
            for number in range(passes):
                _check_bucket(store, bucket, written, number, passes)


def _check_bucket(
    store: TableStore, bucket: BucketId, written: Sequence[tuple[int, DataFileMeta]], number: int, passes: int
) -> None:
    """Looks at the keys of one pass in one bucket."""
    keys = list(store.schema.trimmed_primary_keys)
    names = list(dict.fromkeys([*keys, *store.options.sequence_field]))
    parts = []
    for task, file in written:
        for batch in read_data_file(store, *bucket, file, names):
            rows = pa.Table.from_batches([batch])
            if passes > 1:
                hashes = row_hashes([rows.column(name) for name in keys], store.key_types)
                rows = rows.filter(pa.array(np.mod(hashes, passes) == number))
            parts.append(rows.append_column(_TASK, pa.array(np.full(rows.num_rows, task, np.int32))))
    found = pa.concat_tables(parts).group_by(names).aggregate([(_TASK, "count_distinct")])
    shared = found.filter(pc.field(f"{_TASK}_count_distinct") > 1)
    if not shared.num_rows:
        return
    key = {name: shared.column(name)[0].as_py() for name in keys}
    path = store.partition_path(bucket[0])
    where = f" of partition {path}" if path else ""
    has_order = bool(store.options.sequence_field)
    why = "and the same sequence.field" if has_order else "and nothing says which is the later one"
    raise InvalidRequestError(
        f"table {store.name}: the key {key}{where} is in rows of two Spark tasks, {why}: it would be chance which "
        f"one counts ({shared.num_rows:,} keys of this bucket are). Nothing was committed. Write the frame with "
        "freshet.write, which brings all rows of a key to one task, or df.repartition it by the key"
        + ("" if has_order else "; or set sequence.field on the table"),
        table=store.name,
    )
