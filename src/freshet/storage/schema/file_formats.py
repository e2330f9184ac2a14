"""Whether the files that a table's options ask for can be written: codec and types, by format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.data_type import (
    TIMESTAMP_ROOTS,
    DataField,
    DataType,
    RowType,
    ScalarType,
    TypeRoot,
    child_types,
)
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.file_formats import AVRO_NAME, CODECS

_AVRO_DIGITS: Final = 6
_AVRO_TIME_DIGITS: Final = 3


def check_file_formats(schema: TableSchema, options: CoreOptions) -> None:
    """Refuses a codec that the format does not have, and a column that it cannot hold."""
    for option, file_format, codec_option, codec in _files(options):
        codecs = CODECS.get(file_format)
        if codecs is not None and codec not in codecs:
            raise UnsupportedFeatureError(
                f"{codec_option}={codec} is no codec of {file_format} files, which {option} asks for; use one of "
                f"{', '.join(codecs)}",
                option=codec_option,
            )
        if file_format == "avro":
            _check_avro(schema.fields, option)


def can_be_avro(schema: TableSchema, codec: str) -> bool:
    """Whether Avro files can hold the columns of a table, compressed by this codec."""
    try:
        _check_avro(schema.fields, "file.format")
    except UnsupportedFeatureError:
        return False
    return codec in CODECS["avro"]


def _files(options: CoreOptions) -> Iterator[tuple[str, str, str, str]]:
    """Format and codec of the files of each level, with the options that say so."""
    levels = dict.fromkeys(level for level, _ in (*options.file_format_per_level, *options.file_compression_per_level))
    named = [int(level) for level in levels if level.isdigit()]
    # A level that no option names has the formats of all others.
    for level in (*named, max(named, default=-1) + 1):
        is_own = str(level) in dict(options.file_format_per_level)
        has_codec = str(level) in dict(options.file_compression_per_level)
        format_option = "file.format.per.level" if is_own else "file.format"
        codec_option = "file.compression.per.level" if has_codec else "file.compression"
        yield format_option, options.format_at_level(level), codec_option, options.compression_at_level(level)
        if options.changelog_producer is not ChangelogProducer.NONE:
            yield (
                "changelog-file.format" if options.changelog_file_format_given else format_option,
                options.changelog_format_at_level(level),
                "changelog-file.compression" if options.changelog_file_compression_given else codec_option,
                options.changelog_compression_at_level(level),
            )


def _check_avro(fields: Sequence[DataField], option: str) -> None:
    for field in fields:
        for name, data_type in _parts(field.name, field.type):
            if not AVRO_NAME.fullmatch(name):
                raise UnsupportedFeatureError(
                    f"column {field.name!r} cannot be in Avro files ({option}): {name!r} is no name of a field there; "
                    "use letters, digits and underscores, or another format",
                    column=field.name,
                    option=option,
                )
            if isinstance(data_type, ScalarType) and (data_type.precision or 0) > _digits(data_type):
                raise UnsupportedFeatureError(
                    f"column {field.name!r} cannot be in Avro files ({option}), which have no {data_type}; use up to "
                    f"{_digits(data_type)} digits of a second, or another format",
                    column=field.name,
                    option=option,
                )


def _digits(data_type: ScalarType) -> int:
    """Digits of a second; of types without them more than they may have."""
    if data_type.root is TypeRoot.TIME:
        return _AVRO_TIME_DIGITS
    return _AVRO_DIGITS if data_type.root in TIMESTAMP_ROOTS else 38


def _parts(name: str, data_type: DataType) -> Iterator[tuple[str, DataType]]:
    """The column, and all in it; what has no name has that of the field around it."""
    yield name, data_type
    if isinstance(data_type, RowType):
        for field in data_type.fields:
            yield from _parts(field.name, field.type)
        return
    for child in child_types(data_type):
        yield from _parts(name, child)
