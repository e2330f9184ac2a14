"""The formats of data files: the one module that knows all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet.storage.codec.stats import StatsRules
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.avro.reader import AvroReader
from freshet.storage.files.avro.writer import AvroWriter
from freshet.storage.files.file_format import FileFormat
from freshet.storage.files.orc.footer import footer_bytes as orc_footer_bytes
from freshet.storage.files.orc.reader import OrcReader
from freshet.storage.files.orc.writer import OrcWriter
from freshet.storage.files.parquet.reader import ParquetReader
from freshet.storage.files.parquet.reader import footer_bytes as parquet_footer_bytes
from freshet.storage.files.parquet.writer import ParquetWriter
from freshet.storage.paths import file_format_of

FORMATS: Final[Mapping[str, FileFormat]] = {
    "parquet": FileFormat(ParquetReader, ParquetWriter, StatsRules(), parquet_footer_bytes),
    "orc": FileFormat(
        OrcReader,
        OrcWriter,
        StatsRules(has_nano_bounds=True, has_binary_bounds=False, has_nested_counts=True),
        orc_footer_bytes,
    ),
    "avro": FileFormat(
        AvroReader, AvroWriter, StatsRules(has_nano_bounds=True, has_nested_counts=True, has_system_modes=False)
    ),
}
"""By the name that `file.format` has for it, which is the extension of its files."""


def format_of_file(file_name: str, location: str) -> FileFormat:
    """The format of a data file of a table."""
    name = file_format_of(file_name)
    found = FORMATS.get(name)
    if found is None:
        raise UnsupportedFeatureError(
            f"data file {file_name} of table {location} is {name}; files of {', '.join(FORMATS)} are read: rewrite it "
            "by a full compaction with Apache Paimon and another file.format"
        )
    return found


def format_to_write(name: str, option: str, location: str) -> FileFormat:
    """The format in which files of a table are to be written, as `option` says."""
    found = FORMATS.get(name)
    if found is None:
        raise UnsupportedFeatureError(
            f"table {location} wants {name} files; {', '.join(FORMATS)} can be written: set {option} accordingly"
        )
    return found
