"""Curves through space: every cell once, and of the Hilbert curve without a jump."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.storage.maintenance.sort_compaction import UInt64s, hilbert, z_order


def cells(dimensions: int, bits: int) -> list[UInt64s]:
    grid = np.meshgrid(*[np.arange(1 << bits, dtype=np.uint64)] * dimensions, indexing="ij")
    return [axis.ravel() for axis in grid]


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2)])
def test_each_cell_has_a_place_of_its_own(dimensions: int, bits: int) -> None:
    for curve in (z_order, hilbert):
        places = curve(cells(dimensions, bits), bits)
        assert sorted(places.tolist()) == list(range(1 << dimensions * bits))


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2)])
def test_the_hilbert_curve_makes_no_jump(dimensions: int, bits: int) -> None:
    space = cells(dimensions, bits)
    path = np.stack(space)[:, np.argsort(hilbert(space, bits))].astype(np.int64)
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()


def test_z_order_takes_bits_in_turn() -> None:
    assert z_order([np.array([0b101], np.uint64), np.array([0b011], np.uint64)], 3).tolist() == [0b100111]


def test_coordinates_are_left_as_they_are() -> None:
    space = cells(3, 2)
    before = [axis.copy() for axis in space]
    hilbert(space, 2)
    assert all((axis == was).all() for axis, was in zip(space, before, strict=True))
