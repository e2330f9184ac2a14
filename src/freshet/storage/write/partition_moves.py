"""Rows whose key may be in another partition: what becomes of them, and where a commit has put their keys.

A table with dynamic buckets whose primary key has not all partition columns has each key once, wherever its row came
from. Rows arrive in order; what is known of a key is its *place*: the partition and the bucket that it was put into.

| merge engine | a row for the place of its key | a row for another partition | a row of a new key |
|---|---|---|---|
| deduplicate | goes there | a -D goes to the old place, the row to a new place in its partition | gets a place |
| partial-update, aggregation | goes there | goes to the old place, with the partition columns of it | gets a place |
| first-row | goes there | is dropped | gets a place |

The -D has the values of the new row, and the partition columns of the old place. A -D of the input moves a key like
any row: it is in that partition afterwards, as a deleted one. A key that comes back to a partition comes back to its
bucket: else the changelog of one commit would have its -D and its +I in two buckets, between which there is no order.

Paimon 2.0.0 makes a +I of each row that goes to the old place, also of a -D: rows keep their kind here, unless
`cross-partition-upsert.lose-row-kind` asks for that.

The places that rows of a commit under way have given to keys (`PendingPlaces`) come before those of the index. They are
in memory up to `KEYS_MAX` keys, about 150 MB of them; beyond that in a scratch index, which is gone with the writer. A
disk that is full or damaged below that is a `RetryableError`, after which only `close` goes on.

Source: MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.exceptions import RetryableError
from freshet.storage.model.row_kind import RowKind
from freshet.storage.options.choices import MergeEngine
from freshet.storage.place_index.index_database import BrokenIndexError, IndexDatabase, LockedIndexError

Numbers = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

NOWHERE: Final = -1
"""In place of a partition, a bucket or a place: the key is new."""


class MovingRows(Frozen):
    """Rows that may move, in the order in which they came, and where their keys were before."""

    keys: Numbers
    """Of each row the number of its key, from 0."""
    partitions: Numbers
    """Of each row the number of its own partition."""
    kinds: Kinds | None
    """None where all are +I."""
    placed_in: Numbers
    """Of each key the number of its partition, `NOWHERE` for a new one."""
    placed_at: Numbers
    """Of each key its bucket, likewise."""


class Moves(Frozen):
    """Rows to write, in order, and where keys are afterwards."""

    rows: Numbers
    """The arrivals that they are made of."""
    partitions: Numbers
    """Where they go to; their partition columns are those of it."""
    buckets: Numbers
    kinds: Kinds | None
    placed_in: Numbers
    placed_at: Numbers


GiveBuckets = Callable[[Numbers, Numbers], Numbers]
"""Gives keys buckets in partitions: of each pair of the two, none of which comes twice, the bucket."""


def moves(arrivals: MovingRows, engine: MergeEngine, give_buckets: GiveBuckets, *, lose_kind: bool = False) -> Moves:
    """What to write. `lose_kind` makes a +I of each row that goes to another partition than its own."""
    if engine is MergeEngine.DEDUPLICATE:
        return _following(arrivals, give_buckets)
    return _staying(arrivals, give_buckets, drops=engine is MergeEngine.FIRST_ROW, lose_kind=lose_kind)


def _staying(arrivals: MovingRows, give_buckets: GiveBuckets, *, drops: bool, lose_kind: bool) -> Moves:
    """Keys stay where they are first put."""
    placed_in, placed_at = arrivals.placed_in.copy(), arrivals.placed_at.copy()
    # Written from the last row to the first: what stays is the first row of each key.
    first = np.full(len(placed_in), NOWHERE, np.int64)
    first[arrivals.keys[::-1]] = arrivals.partitions[::-1]
    new = np.flatnonzero((placed_in == NOWHERE) & (first != NOWHERE))
    placed_in[new] = first[new]
    placed_at[new] = give_buckets(new, placed_in[new])
    partitions = placed_in[arrivals.keys]
    is_elsewhere = partitions != arrivals.partitions
    rows = np.flatnonzero(~is_elsewhere) if drops else np.arange(len(partitions))
    kinds = arrivals.kinds
    if kinds is not None and lose_kind:
        kinds = np.where(is_elsewhere, np.int8(RowKind.INSERT), kinds)
    return Moves(
        rows,
        partitions[rows],
        placed_at[arrivals.keys[rows]],
        None if kinds is None else kinds[rows],
        placed_in,
        placed_at,
    )


def _following(arrivals: MovingRows, give_buckets: GiveBuckets) -> Moves:
    """Keys go where their rows go."""
    count = len(arrivals.keys)
    order = np.argsort(arrivals.keys, kind="stable")
    keys, partitions = arrivals.keys[order], arrivals.partitions[order]
    is_first = np.ones(count, np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    before = np.empty(count, np.int64)
    before[1:] = partitions[:-1]
    before[is_first] = arrivals.placed_in[keys[is_first]]
    is_arrival = partitions != before
    is_away = partitions != arrivals.placed_in[keys]
    buckets = arrivals.placed_at[keys]
    away = np.flatnonzero(is_away)
    # In the order of the input: which bucket is filled first does not follow from the numbers of the keys.
    away = away[np.argsort(order[away])]
    pairs = keys[away] * (partitions.max(initial=0) + 1) + partitions[away]
    _, first, pair_of_row = np.unique(pairs, return_index=True, return_inverse=True)
    turns = np.argsort(first)
    given = np.empty(len(first), np.int64)
    firsts = away[first[turns]]
    given[turns] = give_buckets(keys[firsts], partitions[firsts])
    buckets[away] = given[pair_of_row]

    left = np.flatnonzero(is_arrival & (before != NOWHERE))
    left_buckets = np.where(is_first[left], arrivals.placed_at[keys[left]], buckets[left - 1])
    is_last = np.ones(count, np.bool_)
    is_last[:-1] = is_first[1:]
    placed_in, placed_at = arrivals.placed_in.copy(), arrivals.placed_at.copy()
    placed_in[keys[is_last]], placed_at[keys[is_last]] = partitions[is_last], buckets[is_last]
    if not len(left):
        unsorted = np.empty(count, np.int64)
        unsorted[order] = buckets
        return Moves(np.arange(count), arrivals.partitions, unsorted, arrivals.kinds, placed_in, placed_at)
    # The -D before the row that it makes room for.
    rows = np.concatenate([order[left], order])
    turn = np.argsort(2 * rows + np.repeat([0, 1], [len(left), count]), kind="stable")
    kinds = np.full(count, RowKind.INSERT, np.int8) if arrivals.kinds is None else arrivals.kinds
    all_kinds = np.concatenate([np.full(len(left), RowKind.DELETE, np.int8), kinds[order]])
    return Moves(
        rows[turn],
        np.concatenate([before[left], partitions])[turn],
        np.concatenate([left_buckets, buckets])[turn],
        all_kinds[turn],
        placed_in,
        placed_at,
    )


KEYS_MAX: Final = 1_000_000
_STORED: Final = np.dtype("<i8")


class PendingPlaces:
    """Keys and the numbers of their places, which are the caller's. Used by one thread."""

    def __init__(self, new_folder: Callable[[], str], keys_max: int = KEYS_MAX) -> None:
        """`new_folder` gives an empty folder on a local disk."""
        self._new_folder = new_folder
        self._keys_max = keys_max
        self._numbers: dict[bytes, int] = {}
        self._spilled: IndexDatabase | None = None

    def find(self, keys: list[bytes]) -> Numbers:
        """The number of each key, `NOWHERE` for one that has none."""
        found = np.fromiter(map(self._numbers.get, keys, repeat(NOWHERE)), np.int64, len(keys))
        if self._spilled is None:
            return found
        missing = np.flatnonzero(found == NOWHERE)
        with _retryable():
            values = self._spilled.find([keys[index] for index in missing.tolist()])
        is_there = np.array([value is not None for value in values], np.bool_)
        stored = b"".join(value for value in values if value is not None)
        found[missing[is_there]] = np.frombuffer(stored, _STORED)
        return found

    def put(self, keys: Sequence[bytes], numbers: Numbers) -> None:
        """Distinct keys are there from now on."""
        self._numbers.update(zip(keys, numbers.tolist(), strict=True))
        if len(self._numbers) <= self._keys_max:
            return
        spilled = pa.array(self._numbers.keys(), pa.large_binary())
        values = np.fromiter(self._numbers.values(), _STORED, len(spilled))
        self._numbers.clear()
        order = pc.sort_indices(spilled)
        in_order = spilled.take(order).to_numpy(zero_copy_only=False).tolist()
        with _retryable():
            if self._spilled is None:
                self._spilled = IndexDatabase(self._new_folder())
            self._spilled.load(in_order, values[order.to_numpy()].view(f"V{_STORED.itemsize}").tolist())

    def close(self) -> None:
        """Forgets everything."""
        self._numbers.clear()
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None


@contextmanager
def _retryable() -> Iterator[None]:
    try:
        yield
    except (BrokenIndexError, LockedIndexError) as error:
        raise RetryableError(
            f"the places of the rows of this commit cannot be kept: {error}. Nothing was committed: free some space on "
            "that scratch disk, or choose another with the environment variable TMPDIR, then abort and write the rows "
            "again"
        ) from error
