"""Data files of one bucket: how they are named, encoded and described, where they are, and how they are removed.

    <prefix><uuid>-<n>[.<codec>].<format>     one random uuid per writer, n from 0

| | data file | changelog file |
|---|---|---|
| prefix | `data-file.prefix` | `changelog-file.prefix` |
| format | `file.format`, by level | `changelog-file.format`, else as data files |
| codec | `file.compression`, by level | `changelog-file.compression`, else as data files |
| statistics | `metadata.stats-mode`, by level | `changelog-file.stats-mode`, else as data files |
| a file ends at | `target-file-size`, written rows also at `target-file-row-num` | `target-file-size` |

The folder follows from partition and bucket, unless the manifest entry carries a path of its own. Readers know
the format by the extension. Source: FORMAT.md §1, §7.5; MERGING.md §1.2, §1.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

from freshet._frozen import Frozen
from freshet.storage.exceptions import StorageError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import data_file_name


class FileTraits(Frozen):
    """The left or the right column of the table above, at one level; `stats_mode` is that of columns without one of
    their own.
    """

    prefix: str
    file_format: str
    compression: str
    stats_mode: str
    is_changelog: bool = False


def data_file_traits(options: CoreOptions, level: int) -> FileTraits:
    """Data files of a level."""
    return FileTraits(
        options.data_file_prefix,
        options.format_at_level(level),
        options.compression_at_level(level),
        options.stats_mode_at_level(level),
    )


def changelog_file_traits(options: CoreOptions, level: int) -> FileTraits:
    """Changelog files of changes that went to a level."""
    return FileTraits(
        options.changelog_file_prefix,
        options.changelog_format_at_level(level),
        options.changelog_compression_at_level(level),
        options.changelog_stats_mode_at_level(level),
        is_changelog=True,
    )


class DataFileNames:
    """Hands out names for new files of a bucket at one level."""

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, level: int, traits: FileTraits | None = None
    ) -> None:
        """`traits` are those of data files at the level, unless others are given."""
        from freshet.storage.files.formats import format_to_write

        self.traits = traits or data_file_traits(store.options, level)
        key = "changelog-file.format" if self.traits.is_changelog else "file.format and file.format.per.level"
        self.format = format_to_write(self.traits.file_format, key, store.location)
        self._folder = store.bucket_folder(partition, bucket)
        self._suffix = self.traits.compression if store.options.file_suffix_include_compression else None
        self._uuid = store.env.new_uuid()
        self._counter = 0

    def take(self) -> tuple[str, str]:
        """The next name, and its path."""
        name = data_file_name(self.traits.prefix, self._uuid, self._counter, self.traits.file_format, self._suffix)
        self._counter += 1
        return name, f"{self._folder}/{name}"


def data_file_path(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> str:
    """Path of a data or changelog file."""
    return store.data_file(partition, bucket, file.file_name, file.external_path)


def delete_data_file(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> None:
    """Removes a file that nothing names, with its side-cars; one that cannot be removed is left to orphan cleaning."""
    paths, folder = store.paths, store.partition_path(partition)
    names = [paths.data_file(folder, bucket, file.file_name, file.external_path)]
    names += [paths.extra_file(folder, bucket, name, file.external_path) for name in file.extra_files]
    for name in names:
        with suppress(StorageError):
            store.removal.delete(name)


def discard_messages(
    store: TableStore, messages: Iterable[CommitMessage], *, spared: Collection[str] = frozenset()
) -> None:
    """Removes what the messages made, less the files named by `spared`; a file that only changes its level is the
    table's and stays.

    Best effort: orphan cleaning takes the rest.
    """
    for message in messages:
        new = {file.file_name for file in message.new_files}
        upgraded = {file.file_name for file in message.compact_before} - new
        made = (*message.new_files, *message.changelog_files, *message.compact_after, *message.compact_changelog_files)
        for file in {file.file_name: file for file in made if file.file_name not in {*upgraded, *spared}}.values():
            delete_data_file(store, message.partition, message.bucket, file)
        for index_file in (*message.new_index_files, *message.compact_new_index_files):
            with suppress(StorageError):
                store.vectors.delete(index_file)
