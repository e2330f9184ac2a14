"""Which transactions a snapshot of the source holds: what decides whether a chunk of a copy has a change already.

A commit is in the log before other sessions see it: no LSN says what a snapshot holds. Its own text does
(`pg_current_snapshot()`, `xmin:xmax:running`), by the transaction's id. The id in the `B` of a transaction is the
top-level one, as those of the text are; it has 32 of their 64 bits.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from freshet._frozen import Frozen
from freshet.pipeline.decode.convert.converter import Mask

Ids = npt.NDArray[np.integer]
"""Ids of transactions, of 32 or 64 bits."""

_TEXT: Final = re.compile(r"([0-9]+):([0-9]+):((?:[0-9]+(?:,[0-9]+)*)?)")
_EPOCH: Final = 2**32


class TransactionSnapshot(Frozen):
    """All transactions below `oldest` are over; none from `next` on had begun; between them those `running` were not
    over. Ids of 64 bits."""

    oldest: int
    next: int
    running: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> TransactionSnapshot:
        """The value of the text that PostgreSQL writes. Raises `ValueError` where it is none."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no snapshot: PostgreSQL writes xmin:xmax:xip,xip,…")
        oldest, following, running = found.groups()
        return cls(int(oldest), int(following), tuple(map(int, running.split(","))) if running else ())

    def __str__(self) -> str:
        return f"{self.oldest}:{self.next}:{','.join(map(str, self.running))}"

    def holds(self, ids: Ids) -> Mask:
        """Which of these committed transactions it holds, by their ids of 32 or 64 bits."""
        wide = self._widened(ids)
        return (wide < self.oldest) | ((wide < self.next) & ~np.isin(wide, np.array(self.running, np.int64)))

    def _widened(self, ids: Ids) -> npt.NDArray[np.int64]:
        """The id nearest to the snapshot that ends in these 32 bits; the server keeps them within 2³¹ of it."""
        wide = ids.astype(np.int64)
        wide = np.where(wide < _EPOCH, wide + self.next // _EPOCH * _EPOCH, wide)
        too_late = wide - self.next > _EPOCH // 2
        too_early = self.next - wide > _EPOCH // 2
        nearest: npt.NDArray[np.int64] = wide + _EPOCH * (too_early.astype(np.int64) - too_late)
        return nearest
