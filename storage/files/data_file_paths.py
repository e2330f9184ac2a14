"""Names and places of the data files of one bucket.

    <prefix><uuid>-<n>[.<codec>].parquet     one random uuid per writer, n from 0

The place follows from partition and bucket, unless the manifest entry carries a path of its own. The extension tells
readers the format. Source: FORMAT.md §1.
"""

from __future__ import annotations

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.file_traits import FileTraits, data_file_traits
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.paths import data_file_name, file_format_of

PARQUET = "parquet"


class DataFileNames:
    """Hands out names for new files of a bucket at one level."""

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, level: int, traits: FileTraits | None = None
    ) -> None:
        """`traits` are those of data files at the level, unless others are given."""
        self.traits = traits or data_file_traits(store.options, level)
        if self.traits.file_format != PARQUET:
            key = "changelog-file.format" if self.traits.is_changelog else "file.format and file.format.per.level"
            raise UnsupportedFeatureError(
                f"table {store.location} wants {self.traits.file_format} files at level {level}; only parquet can be "
                f"written: set {key} accordingly"
            )
        self._folder = store.bucket_folder(partition, bucket)
        self._suffix = self.traits.compression if store.options.file_suffix_include_compression else None
        self._uuid = store.env.new_uuid()
        self._counter = 0

    def take(self) -> tuple[str, str]:
        """The next name, and its path."""
        name = data_file_name(self.traits.prefix, self._uuid, self._counter, PARQUET, self._suffix)
        self._counter += 1
        return name, f"{self._folder}/{name}"


def data_file_path(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> str:
    """Path of a data or changelog file that can be read here; other formats are refused."""
    file_format = file_format_of(file.file_name)
    if file_format != PARQUET:
        raise UnsupportedFeatureError(
            f"data file {file.file_name} of table {store.location} is {file_format}; only parquet files are read: "
            "rewrite it by a full compaction with Apache Paimon and file.format=parquet"
        )
    return store.data_file(partition, bucket, file.file_name, file.external_path)
