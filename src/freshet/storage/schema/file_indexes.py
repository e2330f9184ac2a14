"""Which columns may have indexes in data files.

Tables that Apache Paimon made may have indexes that are not written here: of another kind (`bsi`), or of values in maps
(`m[k]`). Nobody asks for new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from freshet.storage.codec.bitmap_index import can_have_bitmap
from freshet.storage.codec.bloom_filter import FPP, ITEMS, can_be_hashed
from freshet.storage.codec.file_index import BITMAP, BLOOM_FILTER, RANGE_BITMAP
from freshet.storage.codec.range_bitmap import can_have_range_bitmap
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.file_indexes import (
    IndexedColumn,
    indexed_columns,
    is_list_of_columns,
    is_part_of_map,
    parameters_without_index,
)
from freshet.storage.options.values import parse_size_bytes

TYPES: Final = {BLOOM_FILTER: can_be_hashed, BITMAP: can_have_bitmap, RANGE_BITMAP: can_have_range_bitmap}
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
        if index.kind in TYPES and not TYPES[index.kind](data_type):
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
    if index.kind not in TYPES:
        raise UnsupportedFeatureError(
            f"{option} asks for indexes of kind {index.kind}, which are not written; there are {', '.join(TYPES)} "
            "(range-bitmap does what bsi did)",
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
