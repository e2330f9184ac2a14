"""Rows of keys that move between partitions: the rows that Apache Paimon 2.0.0 writes, and a dict beside them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.model.row_kind import RowKind
from freshet.storage.options.choices import MergeEngine
from freshet.storage.write.partition_moves import NOWHERE, Moves, MovingRows, Numbers, moves

A, B, C, D = range(4)
N1, N2, DELETED, N3 = range(4)
STREAM = [(B, RowKind.INSERT), (B, RowKind.INSERT), (C, RowKind.DELETE), (D, RowKind.INSERT)]
"""catalogs-and-buckets §4.4: +I B n1, +I B n2, -D C d, +I D n3, of one key."""


def first_bucket(keys: Numbers, partitions: Numbers) -> Numbers:
    return np.zeros(len(partitions), np.int64)


def written(found: Moves) -> list[tuple[int, int, int, int]]:
    """(kind, partition, row, bucket)."""
    kinds = np.zeros(len(found.rows), np.int8) if found.kinds is None else found.kinds
    columns = (kinds, found.partitions, found.rows, found.buckets)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def stream(placed_in: int = A, placed_at: int = 3) -> MovingRows:
    return MovingRows(
        np.zeros(4, np.int64),
        np.array([partition for partition, _ in STREAM]),
        np.array([kind for _, kind in STREAM], np.int8),
        np.array([placed_in]),
        np.array([placed_at]),
    )


def test_deduplicate_deletes_the_row_in_the_partition_that_a_key_leaves() -> None:
    found = moves(stream(), MergeEngine.DEDUPLICATE, first_bucket)

    assert written(found) == [
        (RowKind.DELETE, A, N1, 3),
        (RowKind.INSERT, B, N1, 0),
        (RowKind.INSERT, B, N2, 0),
        (RowKind.DELETE, B, DELETED, 0),
        (RowKind.DELETE, C, DELETED, 0),
        (RowKind.DELETE, C, N3, 0),
        (RowKind.INSERT, D, N3, 0),
    ]
    assert (found.placed_in.tolist(), found.placed_at.tolist()) == ([D], [0])


@pytest.mark.parametrize("engine", [MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATE])
@pytest.mark.parametrize("lose_kind", [True, False])
def test_engines_that_fold_keep_a_key_in_its_partition(engine: MergeEngine, lose_kind: bool) -> None:
    found = moves(stream(), engine, first_bucket, lose_kind=lose_kind)

    kind = RowKind.INSERT if lose_kind else RowKind.DELETE
    assert written(found) == [
        (RowKind.INSERT, A, N1, 3),
        (RowKind.INSERT, A, N2, 3),
        (kind, A, DELETED, 3),
        (RowKind.INSERT, A, N3, 3),
    ]
    assert (found.placed_in.tolist(), found.placed_at.tolist()) == ([A], [3])


def test_first_row_drops_rows_for_other_partitions() -> None:
    known = moves(stream(), MergeEngine.FIRST_ROW, first_bucket)
    new = moves(stream(NOWHERE, NOWHERE), MergeEngine.FIRST_ROW, first_bucket)

    assert written(known) == []
    assert written(new) == [(RowKind.INSERT, B, N1, 0), (RowKind.INSERT, B, N2, 0)]
    assert new.placed_in.tolist() == [B]


class Oracle:
    """A dict of keys to places, row by row."""

    def __init__(self, engine: MergeEngine) -> None:
        self.engine = engine
        self.places: dict[int, tuple[int, int]] = {}
        self.written: list[tuple[int, int, int]] = []
        """(kind, partition, row)."""

    def take(self, row: int, key: int, partition: int, kind: int) -> None:
        place = self.places.setdefault(key, (partition, 0))
        if place[0] == partition:
            self.written.append((kind, partition, row))
        elif self.engine is MergeEngine.DEDUPLICATE:
            self.places[key] = (partition, 0)
            self.written += [(RowKind.DELETE, place[0], row), (kind, partition, row)]
        elif self.engine is not MergeEngine.FIRST_ROW:
            self.written.append((kind, place[0], row))


ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from(list(RowKind))), max_size=30)


@given(ROWS, st.dictionaries(st.integers(0, 4), st.integers(0, 3)), st.sampled_from(list(MergeEngine)))
def test_moves_are_those_of_a_dict(
    rows: list[tuple[int, int, int]], known: dict[int, int], engine: MergeEngine
) -> None:
    oracle = Oracle(engine)
    oracle.places = {key: (partition, 7) for key, partition in known.items()}
    for number, (key, partition, kind) in enumerate(rows):
        oracle.take(number, key, partition, kind)
    asked: list[tuple[int, int]] = []

    def next_bucket(keys: Numbers, partitions: Numbers) -> Numbers:
        asked.extend(zip(keys.tolist(), partitions.tolist(), strict=True))
        return np.arange(10, 10 + len(keys), dtype=np.int64)

    found = moves(
        MovingRows(
            np.array([key for key, _, _ in rows], np.int64),
            np.array([partition for _, partition, _ in rows], np.int64),
            np.array([kind for _, _, kind in rows], np.int8),
            np.array([known.get(key, NOWHERE) for key in range(5)]),
            np.array([7 if key in known else NOWHERE for key in range(5)]),
        ),
        engine,
        next_bucket,
    )

    assert [(kind, partition, row) for kind, partition, row, _ in written(found)] == oracle.written
    placed = dict(enumerate(found.placed_in.tolist()))
    assert {key: partition for key, partition in placed.items() if partition != NOWHERE} == {
        key: partition for key, (partition, _) in oracle.places.items()
    }
    assert len(asked) == len(set(asked))
    places = {(key, partition): 10 + number for number, (key, partition) in enumerate(asked)}
    places |= dict.fromkeys(known.items(), 7)
    for _, partition, row, bucket in written(found):
        assert places[rows[row][0], partition] == bucket, "in one partition a key has one bucket"
    for key, partition in placed.items():
        if partition != NOWHERE:
            assert places[key, partition] == found.placed_at[key]
