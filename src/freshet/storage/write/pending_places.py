"""Places that rows of a commit under way have given to keys: they come before those of the index.

In memory up to `KEYS_MAX` keys, about 150 MB of them; beyond that in a scratch index, which is gone with the writer. A
disk that is full or damaged below that is a `RetryableError`, after which only `close` goes on.
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

from freshet.storage.exceptions import RetryableError
from freshet.storage.place_index.index_database import BrokenIndexError, IndexDatabase, LockedIndexError

KEYS_MAX: Final = 1_000_000
UNKNOWN: Final = -1
_STORED: Final = np.dtype("<i8")

Numbers = npt.NDArray[np.int64]


class PendingPlaces:
    """Keys and the numbers of their places, which are the caller's. Used by one thread."""

    def __init__(self, new_folder: Callable[[], str], keys_max: int = KEYS_MAX) -> None:
        """`new_folder` gives an empty folder on a local disk."""
        self._new_folder = new_folder
        self._keys_max = keys_max
        self._numbers: dict[bytes, int] = {}
        self._spilled: IndexDatabase | None = None

    def find(self, keys: list[bytes]) -> Numbers:
        """The number of each key, `UNKNOWN` for one that has none."""
        found = np.fromiter(map(self._numbers.get, keys, repeat(UNKNOWN)), np.int64, len(keys))
        if self._spilled is None:
            return found
        missing = np.flatnonzero(found == UNKNOWN)
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
