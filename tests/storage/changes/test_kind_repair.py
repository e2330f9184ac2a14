"""Kinds after a filter or a projection."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.changes.log_history import repaired_kinds, unchanged_pairs
from freshet.storage.model.row_kind import KIND_TEXTS


def repaired(kinds: str, kept: str, values: list[object] | None = None, kind: pa.DataType | None = None) -> str:
    codes = np.array([KIND_TEXTS.index(text) for text in kinds.split()], np.int8)
    flags = np.array([mark == "y" for mark in kept], np.bool_)
    columns = pa.record_batch({"v": pa.array(range(len(codes)) if values is None else values, kind)})
    found = repaired_kinds(codes, flags, unchanged_pairs(codes, columns))
    return " ".join("." if code < 0 else KIND_TEXTS[code] for code in found)


@pytest.mark.parametrize(
    ("kinds", "kept", "wanted"),
    [
        ("+I -U +U -D", "yyyy", "+I -U +U -D"),
        ("+I -U +U -D", "nyny", ". -D . -D"),  # N14
        ("+I -U +U -D", "nnyn", ". . +I ."),  # N15
        ("-U +U -U +U", "ynny", "-D . . +I"),
        ("-U -D +U", "yyy", "-U -D +U"),  # no pair: as it is
        ("+U", "y", "+U"),
        ("", "", ""),
    ],
)
def test_pairs_that_a_filter_parts(kinds: str, kept: str, wanted: str) -> None:
    assert repaired(kinds, kept) == wanted


def test_pairs_that_a_projection_makes_equal_vanish() -> None:  # N16
    assert repaired("+I -U +U -U +U", "yyyyy", [5, None, None, 1, 2]) == "+I . . -U +U"
    assert repaired("-U +U", "yy", [[1], [1]], pa.list_(pa.int64())) == "-U +U"
