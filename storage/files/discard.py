"""Removes data files that nothing names: what a writer made and gave up.

Source: MERGING.md §1.4.
"""

from __future__ import annotations

from freshet.storage.exceptions import StorageError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta


def delete_data_file(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> None:
    """Removes a file that nothing names, with its side-cars; one that cannot be removed is left to orphan cleaning."""
    paths, folder = store.paths, store.partition_path(partition)
    names = [paths.data_file(folder, bucket, file.file_name, file.external_path)]
    names += [paths.extra_file(folder, bucket, name, file.external_path) for name in file.extra_files]
    for name in names:
        try:
            store.env.file_io.delete(name)
        except StorageError:
            continue
