"""Whether the data files that the options of a table ask for can be written: codec and types by format; indexes.

Tables that Apache Paimon made may have indexes that are not written here: of another kind (`bsi`), or of values in maps
(`m[k]`). Nobody asks for new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from freshet.storage.codec.bitmap_index import can_have_bitmap
from freshet.storage.codec.bloom_filter import FPP, ITEMS, can_be_hashed
from freshet.storage.codec.file_index import BITMAP, BLOOM_FILTER, RANGE_BITMAP
from freshet.storage.codec.range_bitmap import can_have_range_bitmap
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
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
from freshet.storage.options.named_columns import (
    IndexedColumn,
    indexed_columns,
    is_list_of_columns,
    is_part_of_map,
    parameters_without_index,
)
from freshet.storage.options.values import parse_size_bytes

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


INDEX_TYPES: Final = {BLOOM_FILTER: can_be_hashed, BITMAP: can_have_bitmap, RANGE_BITMAP: can_have_range_bitmap}
"""The types that are read and written, and whether a column of a type of data can have one."""

_PARAMETERS: Final = {
    BLOOM_FILTER: ("items", "fpp"),
    BITMAP: ("index-block-size", "version"),
    RANGE_BITMAP: ("chunk-size",),
}


def check_file_indexes(schema: TableSchema, given: Mapping[str, str], typed: Collection[str]) -> None:
    """Refuses columns that are not there, and types of data that an index cannot have; of the options `typed`, which
    are set now, also what is not written, and parameters that mean nothing."""
    for option in filter(is_list_of_columns, given.keys() & typed):
        if not all(map(str.strip, given[option].split(","))):
            raise InvalidRequestError(
                f"option {option} = {given[option]!r} has an empty name; name the columns, or leave the option out",
                option=option,
            )
    for index in indexed_columns(given):
        option = f"file-index.{index.kind}.columns"
        if option in typed:
            _check_written(index, option)
        _check_parameters(index, typed)
        if is_part_of_map(index.column):
            continue
        if index.column not in schema.by_name:
            raise InvalidRequestError(
                f"{option} names column {index.column!r}, which is not there; columns are "
                f"{', '.join(schema.column_names)}",
                option=option,
                column=index.column,
            )
        data_type = schema.by_name[index.column].type
        if index.kind in INDEX_TYPES and not INDEX_TYPES[index.kind](data_type):
            raise UnsupportedFeatureError(
                f"{option} names column {index.column!r} of type {data_type}, for which the format has no such index; "
                "leave it out",
                option=option,
            )
        if index.kind == BLOOM_FILTER:
            bloom_size(index)
        block_bytes(index)


def check_index_parameters(given: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Refuses a parameter of a column without an index of its kind, unless the table has it from before."""
    had = parameters_without_index(before)
    for option in parameters_without_index(given):
        if option not in had:
            raise InvalidRequestError(
                f"option {option!r} is of a column that has no such index, and Apache Paimon does not open a table "
                f"with it; name the column in file-index.<type>.columns, or reset {option!r}",
                option=option,
            )


def _check_written(index: IndexedColumn, option: str) -> None:
    if index.kind not in INDEX_TYPES:
        raise UnsupportedFeatureError(
            f"{option} asks for indexes of kind {index.kind}, which are not written; there are "
            f"{', '.join(INDEX_TYPES)} (range-bitmap does what bsi did)",
            option=option,
        )
    if is_part_of_map(index.column):
        raise UnsupportedFeatureError(
            f"{option} names {index.column!r}, a value in a map, of which no indexes are written; leave it out",
            option=option,
            column=index.column,
        )


def _check_parameters(index: IndexedColumn, typed: Collection[str]) -> None:
    known = _PARAMETERS.get(index.kind)
    for name, text in index.parameters.items():
        option = index.key(name)
        if known is None or option not in typed:
            continue
        if name not in known:
            raise InvalidRequestError(
                f"unknown option {option!r}; an index of kind {index.kind} has {', '.join(known)}", option=option
            )
        if name == "version" and text.strip() != "2":
            raise UnsupportedFeatureError(
                f"{option}={text} is not supported: bitmaps are written in version 2; leave the option out",
                option=option,
            )


def bloom_size(index: IndexedColumn) -> tuple[int, float]:
    """Items and share of false positives of a bloom filter."""
    try:
        items, fpp = int(index.parameters.get("items", ITEMS)), float(index.parameters.get("fpp", FPP))
    except ValueError as error:
        raise InvalidRequestError(
            f"{index.key('items')} and fpp must be numbers: {error}", option=index.key("items")
        ) from error
    if items < 1 or not 0 < fpp < 1:
        raise InvalidRequestError(
            f"{index.key('items')} must be positive, not {items}, and {index.key('fpp')} between 0 and 1, not {fpp}",
            option=index.key("items"),
        )
    return items, fpp


def block_bytes(index: IndexedColumn) -> int | None:
    """Size of the blocks of a bitmap's values, or of the chunks of a range bitmap's; None where it is the default."""
    name = {BITMAP: "index-block-size", RANGE_BITMAP: "chunk-size"}.get(index.kind)
    text = None if name is None else index.parameters.get(name)
    if name is None or text is None:
        return None
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"option {index.key(name)} = {text!r} cannot be used: {error}", option=index.key(name)
        ) from error
