"""The formats of data files: the one module that knows all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.avro.avro_format import AvroFormat
from freshet.storage.files.file_format import FileFormat
from freshet.storage.files.orc.orc_format import OrcFormat
from freshet.storage.files.parquet.parquet_format import ParquetFormat
from freshet.storage.paths import file_format_of

FORMATS: Final[Mapping[str, FileFormat]] = {"parquet": ParquetFormat(), "orc": OrcFormat(), "avro": AvroFormat()}
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
