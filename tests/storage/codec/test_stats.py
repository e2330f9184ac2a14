"""Statistics: truncation as the reference does it, modes of columns, dense and full shapes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.stats import (
    NO_STATS,
    ColumnStats,
    StatsKind,
    StatsMode,
    decode_stats,
    encode_stats,
    encode_value_stats,
    merge_stats,
    parse_stats_mode,
    reduce_stats,
    stats_modes,
    truncate_max,
    truncate_min,
)
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.options.core import CoreOptions

INT = parse_data_type("INT NOT NULL")
STRING = parse_data_type("STRING")
ARRAY = parse_data_type({"type": "ARRAY", "element": "INT"})
LAST = "\U0010ffff"


# Expected values are those of Apache Paimon 2.0.0, but for the surrogate range (marked).
@pytest.mark.parametrize(
    ("value", "length", "low", "high"),
    [
        ("string-that-is-longer-than", 16, "string-that-is-l", "string-that-is-m"),
        ("string-that-is-longer-than", 4, "stri", "strj"),
        ("short", 16, "short", "short"),
        ("exactly16chars!!", 16, "exactly16chars!!", "exactly16chars!!"),
        ("aaaaaaaaaaaaaaaa\u00e9", 16, "aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaab"),
        ("\U0001f600\U0001f600\U0001f600\U0001f600x", 4, "\U0001f600" * 4, "\U0001f600" * 3 + "\U0001f601"),
        ("abc" + LAST * 2, 4, "abc" + LAST, "abd"),
        (LAST * 4 + "z", 4, LAST * 4, None),
        ("abcd\ud7ffx", 4, "abcd", "abce"),
        ("abc\ud7ffx", 4, "abc\ud7ff", "abc\ue000"),  # the reference writes "abc?", which is no upper bound
        ("abc\uffffx", 4, "abc\uffff", "abc\U00010000"),
        ("éééééé", 4, "éééé", "éééê"),
        (bytes([1, 2, 3, 4, 5]), 4, bytes([1, 2, 3, 4]), bytes([1, 2, 3, 5])),
        (bytes([1, 2, 3, 255, 5]), 4, bytes([1, 2, 3, 255]), bytes([1, 2, 4])),
        (bytes([255] * 4 + [0]), 4, bytes([255] * 4), None),
        (bytes([1, 2, 3, 4]), 4, bytes([1, 2, 3, 4]), bytes([1, 2, 3, 4])),
        (bytes([0, 0, 255, 255, 255]), 4, bytes([0, 0, 255, 255]), bytes([0, 1])),
        (5, 4, 5, 5),
        (None, 4, None, None),
    ],
)
def test_truncation(value: Any, length: int, low: Any, high: Any) -> None:
    assert truncate_min(value, length) == low
    assert truncate_max(value, length) == high


@given(st.text(), st.integers(1, 5))
def test_cut_bounds_are_bounds(text: str, length: int) -> None:
    high = truncate_max(text, length)
    assert truncate_min(text, length).encode() <= text.encode()
    assert high is None or (high.encode() >= text.encode() and len(high) <= max(length, len(text)))


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", StatsMode(StatsKind.NONE)),
        ("Counts", StatsMode(StatsKind.COUNTS)),
        ("FULL", StatsMode(StatsKind.FULL)),
        ("truncate(16)", StatsMode(StatsKind.TRUNCATE, 16)),
        ("TRUNCATE(3)", StatsMode(StatsKind.TRUNCATE, 3)),
    ],
)
def test_mode_texts(text: str, mode: StatsMode) -> None:
    assert parse_stats_mode(text) == mode


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "all"])
def test_unknown_modes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="statistics mode"):
        parse_stats_mode(text)


def modes(options: dict[str, str], columns: list[str], **more: Any) -> list[str]:
    core = CoreOptions.parse(options, has_primary_key=True)
    return [
        f"{mode.kind}({mode.length})" if mode.length else str(mode.kind) for mode in stats_modes(core, columns, **more)
    ]


def test_modes_of_columns() -> None:
    assert modes({}, ["_KEY_k", "_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "v"]) == [
        "truncate(128)",
        "truncate(128)",
        "truncate(128)",
        "truncate(16)",
        "truncate(16)",
    ]
    assert modes({"metadata.stats-mode": "none", "fields.v.stats-mode": "full"}, ["k", "v"]) == ["none", "full"]
    assert modes({"metadata.stats-mode": "none"}, ["k", "v"], thin_key_columns=["k"]) == ["truncate(128)", "none"]
    assert modes({"metadata.stats-mode.per.level": "0:none,5:full"}, ["k"], level=0) == ["none"]
    assert modes({"metadata.stats-mode.per.level": "0:none,5:full"}, ["k"], level=5) == ["full"]
    assert modes({"metadata.stats-mode.per.level": "0:none,5:full"}, ["k"], level=1) == ["truncate(16)"]


def test_columns_behind_the_first_n_have_none_unless_they_name_a_mode() -> None:
    options = {"metadata.stats-keep-first-n-columns": "2", "fields.d.stats-mode": "counts"}
    assert modes(options, ["_KEY_a", "a", "b", "c", "d", "e"]) == [
        "truncate(128)",
        "truncate(16)",
        "truncate(16)",
        "none",
        "counts",
        "none",
    ]
    assert modes({"metadata.stats-keep-first-n-columns": "0"}, ["a"]) == ["none"]


def test_what_a_mode_keeps() -> None:
    stats = ColumnStats("abcdef", "uvwxyz", 3)
    assert reduce_stats(stats, StatsMode(StatsKind.NONE), STRING) == NO_STATS
    assert reduce_stats(stats, StatsMode(StatsKind.COUNTS), STRING) == ColumnStats(null_count=3)
    assert reduce_stats(stats, StatsMode(StatsKind.FULL), STRING) == stats
    assert reduce_stats(stats, StatsMode(StatsKind.TRUNCATE, 2), STRING) == ColumnStats("ab", "uw", 3)
    assert reduce_stats(ColumnStats(1, 2, 0), StatsMode(StatsKind.FULL), ARRAY) == NO_STATS
    nanos = parse_data_type("TIMESTAMP(9)")
    assert reduce_stats(ColumnStats(1, 2, 0), StatsMode(StatsKind.FULL), nanos) == ColumnStats(null_count=0)
    overflow = ColumnStats("a", LAST * 3, 1)
    assert reduce_stats(overflow, StatsMode(StatsKind.TRUNCATE, 2), STRING) == ColumnStats(null_count=1)
    all_null = ColumnStats(None, None, 7)
    assert reduce_stats(all_null, StatsMode(StatsKind.TRUNCATE, 2), STRING) == all_null


def test_dense_statistics_leave_out_columns_without_any() -> None:
    columns, types = ["a", "b", "c"], [INT, ARRAY, STRING]
    stats = [ColumnStats(1, 2, 0), NO_STATS, ColumnStats("x", "y", 4)]
    encoded, covered = encode_value_stats(columns, stats, types, dense=True)
    assert covered == ("a", "c")
    assert encoded.min_values == encode_row([1, "x"], [INT, STRING])
    assert encoded.max_values == encode_row([2, "y"], [INT, STRING])
    assert encoded.null_counts == (0, 4)
    assert decode_stats(encoded, [INT, STRING]) == [stats[0], stats[2]]
    full, covered = encode_value_stats(columns, stats, types, dense=False)
    assert covered is None
    assert full.null_counts == (0, None, 4)
    assert decode_stats(full, types) == stats


def test_dense_statistics_of_all_columns_name_none() -> None:
    _, covered = encode_value_stats(["a"], [ColumnStats(1, 2, 0)], [INT], dense=True)
    assert covered is None


def test_no_statistics_are_an_empty_list_of_columns_and_empty_rows() -> None:
    encoded, covered = encode_value_stats(["a"], [NO_STATS], [INT], dense=True)
    assert covered == ()
    assert encoded == EMPTY_STATS
    assert encoded.min_values == EMPTY_ROW


def test_unknown_bounds_of_not_null_columns_can_be_written() -> None:
    encoded = encode_stats([ColumnStats(null_count=0)], [INT])
    assert decode_stats(encoded, [INT]) == [ColumnStats(None, None, 0)]


def test_merging_statistics() -> None:
    assert merge_stats(ColumnStats(1, 5, 0), ColumnStats(-3, 2, 4)) == ColumnStats(-3, 5, 4)
    assert merge_stats(ColumnStats(null_count=2), ColumnStats(1, 1, 0)) == ColumnStats(1, 1, 2)
    assert merge_stats(ColumnStats(1, 1, None), ColumnStats(2, 2, 3)) == ColumnStats(1, 2, None)
    merged = merge_stats(ColumnStats(0.0, math.nan, 0), ColumnStats(-0.0, 9.0, 0))
    assert math.copysign(1, merged.min_value) == -1
    assert math.isnan(merged.max_value)
    # U+FF61 sorts below U+10000 by UTF-8 bytes, above it by UTF-16 units.
    assert merge_stats(ColumnStats("｡", "｡", 0), ColumnStats("\U00010000", "\U00010000", 0)).max_value == "\U00010000"
