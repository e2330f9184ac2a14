"""A table of 16 buckets that is compacted but for two files of level 0 each: 10,000 files, of which few are real.

Files of the last level in which no key asked for lies are entries of manifests alone: who reads one finds nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from freshet import Catalog
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.commit.committer import Committer
from freshet.storage.files.data_file_writer import KeyValueFileWriter
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta, FileSource
from freshet.storage.model.data_type import parse_data_type

FILES = 10_000
BUCKETS = 16
KEYS_PER_FILE = 10
NAME = "d.many"

_LEVEL_0_FILES = 2
_LAST_LEVEL = 5


def make_many_files(catalog: Catalog, asked: Collection[int], files: int = FILES) -> None:
    """The table `NAME`: ids from 0 on, each with the value `value <id>`, every 50th with `new <id>` since."""
    table = catalog.create_table(
        NAME,
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": str(BUCKETS), "write-only": "true"},
    )
    store = table.store
    count = (files - BUCKETS * _LEVEL_0_FILES) * KEYS_PER_FILE
    ids = pa.chunked_array([pa.array(range(count), pa.int64())])
    owners = bucket_ids([ids], store.bucket_key_types, BUCKETS)
    messages = []
    for bucket in range(BUCKETS):
        keys = np.flatnonzero(owners == bucket)
        parts = np.array_split(keys, max(1, round(len(keys) / KEYS_PER_FILE)))
        template = _written(store, bucket, parts[0])
        placed = [
            _written(store, bucket, part) if not set(part.tolist()).isdisjoint(asked) else _named(template, part)
            for part in parts
        ]
        messages.append(CommitMessage(EMPTY_ROW, bucket, BUCKETS, new_files=tuple(placed)))
    store.env.checks_claims = False  # which looks whether all files are there
    Committer(store, "placed").commit(1, messages)
    with table.writer("new") as writer:
        for _ in range(_LEVEL_0_FILES):
            writer.write(pa.table({"id": ids[::50], "v": [f"new {each}" for each in ids[::50].to_pylist()]}))
            writer.commit()


def value_of(key: int) -> str:
    """What the table has of a key."""
    return f"new {key}" if key % 50 == 0 else f"value {key}"


def _written(store: TableStore, bucket: int, keys: np.ndarray) -> DataFileMeta:
    writer = KeyValueFileWriter(store, EMPTY_ROW, bucket, _LAST_LEVEL, FileSource.COMPACT)
    writer.write(
        pa.table(
            {
                "_SEQUENCE_NUMBER": pa.array(keys, pa.int64()),
                "_VALUE_KIND": pa.array(np.zeros(len(keys)), pa.int8()),
                "id": pa.array(keys, pa.int64()),
                "v": [f"value {key}" for key in keys],
            }
        )
    )
    (file,) = writer.close()
    return file


def _named(template: DataFileMeta, keys: np.ndarray) -> DataFileMeta:
    low, high = (encode_row([int(key)], [parse_data_type("BIGINT")]) for key in (keys[0], keys[-1]))
    name = f"data-nowhere-{keys[0]}.parquet"
    return replace(template, file_name=name, min_key=low, max_key=high, row_count=len(keys))
