"""Counts rows of kind -D that hold values of the row that they removed, in tables where deletes remove rows.

Releases of Freshet before 1.0 wrote them so, and Apache Paimon does. A later row of the key goes on from these values,
in the merge of both. A full compaction removes such rows; it cannot know of values that have come back before.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.merge.retract_layers import deletes_with_values
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId


def count_deleted_values(store: TableStore, bucket: BucketId, files: Iterable[DataFileMeta]) -> int:
    """Such rows in these files; only files with retracts are read, and of these only what is asked."""
    rule, found = store.retract_rule, 0
    if rule is None or not rule.removes_rows:
        return 0
    columns = rule.blank_columns
    for file in files:
        if not file.is_delete_free:
            for rows in read_data_file(store, *bucket, file, columns, system_columns=True):
                found += deletes_with_values(pa.Table.from_batches([rows]), rule, store.schema)
    return found
