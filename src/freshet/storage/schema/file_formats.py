"""Whether the files that a table's options ask for can be written: codec and types, by format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.data_type import (
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    child_types,
)
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import AVRO_NAME, CODECS, ChangelogProducer
from freshet.storage.options.core import CoreOptions

_AVRO_DIGITS: Final = 6
_AVRO_TIME_DIGITS: Final = 3


def check_file_formats(schema: TableSchema, options: CoreOptions) -> None:
    """Refuses a codec that the format does not have, and a column that it cannot hold."""
    for option, file_format, codec_option, codec in _files(options):
        if file_format in CODECS:
            checked_codec(file_format, codec, codec_option, option)
        if file_format == "avro":
            check_avro(schema.fields, option)
        if file_format == "orc":
            _check_orc(schema.fields, option)


def checked_codec(
    file_format: str, compression: str, codec_option: str = "file.compression", option: str = "file.format"
) -> str:
    """The codec in lower case, which is one of the format; the options say what asks for both."""
    codec, codecs = compression.lower(), CODECS[file_format]
    if codec not in codecs:
        raise UnsupportedFeatureError(
            f"{codec_option}={codec} is no codec of {file_format} files, which {option} asks for; use one of "
            f"{', '.join(codecs)}",
            option=codec_option,
        )
    return codec


def can_be_avro(schema: TableSchema, codec: str) -> bool:
    """Whether Avro files can hold the columns of a table, compressed by this codec."""
    try:
        check_avro(schema.fields)
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


def check_avro(fields: Sequence[DataField], option: str = "file.format") -> None:
    """Refuses a column that Avro files cannot hold, naming the option that asks for them."""
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
    columns: dict[str, str] = {}
    for field in fields:
        for name in _avro_records(field.name, field.type):
            if name in columns:
                raise UnsupportedFeatureError(
                    f"columns {columns[name]!r} and {field.name!r} cannot be in one Avro file ({option}): a record in "
                    f"each would have the name {name!r}; use other names, or another format",
                    column=field.name,
                    option=option,
                )
            columns[name] = field.name


def _check_orc(fields: Sequence[DataField], option: str) -> None:
    for field in fields:
        for name, _ in _parts(field.name, field.type):
            if "`" in name:
                raise UnsupportedFeatureError(
                    f"column {field.name!r} cannot be in ORC files ({option}): Apache Paimon does not read the name "
                    f"{name!r} there, because of the backtick; use another name, or another format",
                    column=field.name,
                    option=option,
                )


def _avro_records(path: str, data_type: DataType) -> Iterator[str]:
    """Names of the records of a type, as Apache Paimon makes them of the names on the way there."""
    match data_type:
        case ArrayType(element=element):
            yield from _avro_records(path, element)
        case MapType(key=key, value=value) if key.root in TEXT_ROOTS:
            yield from _avro_records(path, value)
        case MapType(key=key, value=value):
            yield path
            yield from _avro_records(f"{path}_key", key)
            yield from _avro_records(f"{path}_value", value)
        case RowType(fields=fields):
            yield path
            for field in fields:
                yield from _avro_records(f"{path}_{field.name}", field.type)


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
