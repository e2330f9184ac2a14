"""How far above what is live a writer numbers its rows, by what became of its last commits.

Alone it numbers them without a gap. Once another writer has overtaken one of its commits, the next ones leave room
below their rows for what others commit meanwhile: more for more rows, which take longer to write (again), and at
random, so that of two equal writers each is overtaken half as often.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.io.env import Env

CALM_COMMITS: Final = 16
"""Commits that were not overtaken, after which the writer takes itself to be alone."""
ROOM_PER_ROW: Final = 1024


class Contention:
    """What one writer knows of others; used by one thread."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._commits_left = 0

    def note(self, *, was_overtaken: bool) -> None:
        """Another commit was made."""
        self._commits_left = CALM_COMMITS if was_overtaken else max(0, self._commits_left - 1)

    def room(self, row_count: int) -> int:
        """Numbers to leave free below so many rows."""
        if not self._commits_left:
            return 0
        return int(row_count * ROOM_PER_ROW * (1 + self._env.jitter()))
