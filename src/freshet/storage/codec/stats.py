"""Column statistics of file entries: from footer values to what the mode keeps, to binary rows, and back.

| mode | min and max | null count |
|---|---|---|
| none | no | no; the column is left out of dense statistics |
| counts | no | yes |
| truncate(n) | strings cut to n code points, bytes to n bytes | yes |
| full | as they are | yes |

A cut maximum gets its last code point (byte) increased, so that it stays an upper bound; where that overflows, the one
before is increased and the rest dropped; where none can be, minimum and maximum are both unknown. Code points of the
surrogate range are skipped, as they are not text.

Mode of a column: `fields.<name>.stats-mode`, else truncate(128) for system columns and, in thin mode, for the primary
key, else none for the columns behind `metadata.stats-keep-first-n-columns`, else the mode of the level. Nested types
have no statistics at all; TIMESTAMP with p > 6 has a null count only (Parquet keeps no bounds for it).

Value statistics are *dense* when a list of columns comes with them: arity and counts are those of the listed columns.
No list means all columns of the file's schema, in order. The list is left out when it would name every column.

Source: FORMAT.md §6.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import EPOCH_DAY_ORDINAL, decode_row, encode_row
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_file import SimpleStats
from freshet.storage.model.data_type import BYTES_ROOTS, TIMESTAMP_ROOTS, DataType, ScalarType, with_nullable
from freshet.storage.model.schema import KEY_COLUMN_PREFIX, SYSTEM_COLUMNS
from freshet.storage.options.core import CoreOptions

KEY_STATS_LENGTH: Final = 128

_TRUNCATE: Final = re.compile(r"TRUNCATE\((\d+)\)")
_CODE_POINT_MAX: Final = 0x10FFFF


class StatsKind(StrEnum):
    """What is kept of a column."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


class StatsMode(Frozen):
    """A mode; `length` belongs to truncate."""

    kind: StatsKind
    length: int = 0


class ColumnStats(Frozen):
    """Bounds and null count of one column, as `decode_row` returns values; None is unknown."""

    min_value: Any = None
    max_value: Any = None
    null_count: int | None = None

    @property
    def is_none(self) -> bool:
        """True when nothing is known."""
        return self.min_value is None and self.max_value is None and self.null_count is None


NO_STATS: Final = ColumnStats()


class StatsRules(Frozen):
    """What entries of files of a format hold of columns, as Paimon writes it; the defaults are those of Parquet."""

    has_nano_bounds: bool = False
    """TIMESTAMP(7) and finer have bounds."""
    has_binary_bounds: bool = True
    has_nested_counts: bool = False
    """ARRAY, MAP and ROW have a null count."""
    has_system_modes: bool = True
    """Key and system columns have a mode of their own, and are not counted among the first n columns."""


PLAIN_RULES: Final = StatsRules()


def parse_stats_mode(text: str) -> StatsMode:
    """Reads `none`, `counts`, `full` or `truncate(n)`, in any case."""
    match = _TRUNCATE.fullmatch(text.upper())
    if match is not None and int(match[1]) > 0:
        return StatsMode(StatsKind.TRUNCATE, int(match[1]))
    if match is None and text.lower() in (StatsKind.NONE, StatsKind.COUNTS, StatsKind.FULL):
        return StatsMode(StatsKind(text.lower()))
    raise InvalidRequestError(f"unknown statistics mode {text!r}; use none, counts, truncate(16) or full")


def stats_modes(
    options: CoreOptions,
    columns: Sequence[str],
    level: int = 0,
    thin_key_columns: Sequence[str] = (),
    *,
    mode: str | None = None,
    rules: StatsRules = PLAIN_RULES,
) -> list[StatsMode]:
    """Mode of each column of a file; `thin_key_columns` are the key columns that a thin file keeps as values only.

    `mode` takes the place of the mode of the level (changelog files).
    """
    others = parse_stats_mode(options.stats_mode_at_level(level) if mode is None else mode)
    modes: list[StatsMode] = []
    counted = 0
    keep = options.stats_keep_first_n_columns
    for column in columns:
        own = options.field_option(column, "stats-mode")
        if (
            own is None
            and rules.has_system_modes
            and (column in SYSTEM_COLUMNS or column.startswith(KEY_COLUMN_PREFIX) or column in thin_key_columns)
        ):
            modes.append(StatsMode(StatsKind.TRUNCATE, KEY_STATS_LENGTH))
            continue
        if own is not None:
            modes.append(parse_stats_mode(own))
        elif 0 <= keep <= counted:
            modes.append(StatsMode(StatsKind.NONE))
        else:
            modes.append(others)
        counted += 1
    return modes


def reduce_stats(
    stats: ColumnStats, mode: StatsMode, data_type: DataType, rules: StatsRules = PLAIN_RULES
) -> ColumnStats:
    """What the mode keeps of a column's statistics."""
    if mode.kind is StatsKind.NONE or not (isinstance(data_type, ScalarType) or rules.has_nested_counts):
        return NO_STATS
    if mode.kind is StatsKind.COUNTS or not _has_bounds(data_type, rules):
        return ColumnStats(null_count=stats.null_count)
    if mode.kind is StatsKind.FULL:
        return stats
    upper = truncate_max(stats.max_value, mode.length)
    if upper is None:
        return ColumnStats(null_count=stats.null_count)
    return ColumnStats(truncate_min(stats.min_value, mode.length), upper, stats.null_count)


def truncate_min(value: Any, length: int) -> Any:
    """The first `length` code points or bytes; other values are left alone."""
    return value[:length] if isinstance(value, str | bytes) else value


def truncate_max(value: Any, length: int) -> Any:
    """An upper bound of at most `length` code points or bytes; None when there is none."""
    if not isinstance(value, str | bytes) or len(value) <= length:
        return value
    for index in range(length - 1, -1, -1):
        if isinstance(value, bytes):
            if value[index] != 0xFF:
                return value[:index] + bytes([value[index] + 1])
        elif ord(value[index]) != _CODE_POINT_MAX:
            following = ord(value[index]) + 1
            return value[:index] + chr(0xE000 if following == 0xD800 else following)
    return None


def merge_stats(first: ColumnStats, second: ColumnStats) -> ColumnStats:
    """Statistics of two sets of rows together; a bound unknown on one side but with rows there must be passed as such.

    A side whose bounds are None counts as having no values (only nulls).
    """
    counts = (first.null_count, second.null_count)
    return ColumnStats(
        _least(first.min_value, second.min_value),
        _greatest(first.max_value, second.max_value),
        None if None in counts else sum(count for count in counts if count is not None),
    )


def encode_stats(stats: Sequence[ColumnStats], types: Sequence[DataType]) -> SimpleStats:
    """Statistics of all columns given, in their order: key, partition and non-dense value statistics."""
    nullable = [with_nullable(data_type, True) for data_type in types]
    return SimpleStats(
        encode_row([column.min_value for column in stats], nullable),
        encode_row([column.max_value for column in stats], nullable),
        tuple(column.null_count for column in stats),
    )


def encode_value_stats(
    columns: Sequence[str], stats: Sequence[ColumnStats], types: Sequence[DataType], *, dense: bool
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Value statistics and the columns they cover (None: all of them), as a file entry holds them."""
    if not dense:
        return encode_stats(stats, types), None
    kept = [index for index, column in enumerate(stats) if not column.is_none]
    encoded = encode_stats([stats[index] for index in kept], [types[index] for index in kept])
    return encoded, None if len(kept) == len(columns) else tuple(columns[index] for index in kept)


def decode_stats(stats: SimpleStats, types: Sequence[DataType]) -> list[ColumnStats]:
    """Statistics of the columns that an entry covers; `types` are theirs, in that order."""
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    counts: tuple[int | None, ...] = stats.null_counts or (None,) * len(types)
    return [ColumnStats(low, high, count) for low, high, count in zip(lows, highs, counts, strict=True)]


def _has_bounds(data_type: DataType, rules: StatsRules) -> bool:
    if not isinstance(data_type, ScalarType):
        return False
    if data_type.root in BYTES_ROOTS:
        return rules.has_binary_bounds
    is_nano = data_type.root in TIMESTAMP_ROOTS and (data_type.precision or 0) > 6
    return rules.has_nano_bounds or not is_nano


def _least(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second, key=order_of)


def _greatest(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second, key=order_of)


def order_of(value: Any) -> Any:
    """Order of the format: text by UTF-8 bytes, NaN above all numbers, -0.0 below 0.0, dates by their day.

    Days outside the years 1 to 9999 come as integers, which compare with no `datetime.date`.
    """
    if isinstance(value, datetime.date):
        return value.toordinal() - EPOCH_DAY_ORDINAL
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1.0, value))
    return value


def is_within(row: Sequence[Any], low: Sequence[Any], high: Sequence[Any], null_counts: Sequence[int | None]) -> bool:
    """False only where a value is certainly outside of the bounds; NaN is outside of nothing."""
    for value, least, most, null_count in zip(row, low, high, null_counts, strict=True):
        if value is None:
            if null_count == 0:
                return False
        elif least is None or most is None or value != value:
            continue
        elif order_of(value) < order_of(least) or order_of(value) > order_of(most):
            return False
    return True
