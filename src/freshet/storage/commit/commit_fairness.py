"""Whose turn it is, of writers that commit to one table of an object store without a pause.

There a round costs six requests, and one that is lost costs them for nothing: of 16 writers that try until they win, a
few make nearly all commits, together half as many as one alone. So a writer that commits again at once, or has lost a
claim, lets those go first whose last commit is older than its own; the snapshots have the times of all users' last
commits. Writers that commit all the time so go in turn.

| it waits                       | until                                     | then                        |
|--------------------------------|-------------------------------------------|-----------------------------|
| for about as many commits      | somebody has committed                    | reads what that was, and    |
| as there are writers ahead     |                                           | looks who is ahead now      |
|                                | nobody has in the time of one more commit | goes, and waits for none of |
|                                |                                           | these before they are back  |

The snapshots say nothing of a writer that has not committed yet, so those that come at once cannot be put in order. One
that loses a second claim before its first commit waits a random part of the time of as many commits as it has lost
claims: of 40 writers each tries 8 times instead of 20 on average, and all are done in 1.5 times the time of 40 commits
(simulated; times that double cost 3 times). Among writers that go in turn it then begins when the
next snapshot is there, as the one does whose turn it is. Claims lost to users who overtake a commit for the first time
are no retries of it: with `commit.max-retries` of them, some of many writers that start together would fail.

On a disk nobody waits: there a round costs less than a wait. Nothing here is needed for a commit to be right: the claim
decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from freshet.storage.commit.foreign_writers import ForeignWriters
from freshet.storage.commit.last_commits import CommitTrace
from freshet.storage.commit.table_view import VIEW_MS, TableView, look, look_again
from freshet.storage.exceptions import StorageError
from freshet.storage.metadata.live_files import data_manifests_at_once
from freshet.storage.metadata.table_store import TableStore

CALM_COMMITS: Final = 16
"""Commits without a lost claim, after which a writer takes itself to be alone."""
WINDOW_MS: Final = 60_000
"""Users whose last commit is so much older than that of this one have stopped."""
PAUSE: Final = 3
"""A writer that has not committed for the time of so many commits makes a pause."""
_SHARE: Final = 0.5
"""After this part of the time for which it expects to wait a writer looks at the table: times differ."""
_STEP: Final = 0.15
"""From then on it looks after each such part of a commit."""
_OVERTAKES: Final = 2
"""Snapshots with which each other user may overtake a commit before that counts as a retry: an APPEND, a COMPACT."""
_MEASURED: Final = 4
"""Commits of this writer, the shortest of which says how long one takes: the first of a process takes longer."""


def users_ahead(
    users: Mapping[str, CommitTrace], commit_user: str, absent_ms: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """The users that go before this one, with the times of their last commits; `absent_ms` are those of users that did
    not come when they were waited for."""
    own = users.get(commit_user)
    if own is None:
        return {}
    return {
        user: trace.time_ms
        for user, trace in users.items()
        if user != commit_user
        and own.time_ms - WINDOW_MS <= trace.time_ms < own.time_ms
        and absent_ms.get(user) != trace.time_ms
    }


class CommitFairness:
    """The turns of one commit user."""

    def __init__(self, store: TableStore, commit_user: str, neighbours: ForeignWriters) -> None:
        self._store = store
        self._neighbours = neighbours
        self._commit_user = commit_user
        self._commits_left = 0
        """Before this writer takes itself to be alone."""
        self._absent_ms: dict[str, int] = {}
        self._lost_count = 0
        """Claims that the commit has lost which is being made."""
        self._is_spread = True
        """This writer has waited since it has lost the last one."""
        self._first: TableView | None = None
        """The table as this commit first saw it."""
        self._seen: TableView | None = None
        """The table as it saw it last."""
        self._overtaken_by: set[str] = set()
        """Users that have committed between the two."""
        self._won_ms: int | None = None
        self._began_ms = 0
        self._spent_ms: deque[int] = deque(maxlen=_MEASURED)
        """How long commits took, from the look to the claim."""

    def note_lost(self) -> None:
        """A claim was lost: there are others."""
        self._commits_left = CALM_COMMITS
        self._lost_count, self._is_spread = self._lost_count + 1, False
        if not self._spent_ms:
            self._spent_ms.append(self._store.env.now_ms() - self._began_ms)

    def note_won(self) -> None:
        """A claim was won."""
        self._commits_left = max(0, self._commits_left - 1)
        self._lost_count, self._first = 0, None
        self._overtaken_by.clear()
        self._won_ms = self._store.env.now_ms()
        self._spent_ms.append(self._won_ms - self._began_ms)

    def look(self) -> TableView:
        """The table, when it is this writer's turn."""
        if self._store.env.is_remote and not self._is_spread:
            self._spread()
        view = self._neighbours.look()
        if self._store.env.is_remote and (self._commits_left or self._makes_no_pause()):
            view = self._wait(view)
        self._began_ms = view.seen_ms
        return view

    def note_seen(self, view: TableView) -> None:
        """A round of a commit begins, which builds on this view."""
        if not self._store.env.is_remote:
            return
        if self._began_ms < view.seen_ms:  # it was not looked at here, and maybe long before
            self._began_ms = self._store.env.now_ms()
        self._first, self._seen = self._first or view, view
        if view is not self._first:
            before, now = self._first.last_commits.users, view.last_commits.users
            self._overtaken_by.update(user for user, trace in now.items() if before.get(user) != trace)

    def spared(self, count: int) -> int:
        """The tries that do not count, of so many lost ones of a commit to a store."""
        return min(count, _OVERTAKES * len(self._overtaken_by)) if self._store.env.is_remote else 0

    def _spread(self) -> None:
        """A wait after a lost claim, of a writer that the table does not know."""
        env, seen, self._is_spread = self._store.env, self._seen, True
        if seen is None or self._first is None or self._commit_user in seen.last_commits.users:
            return
        if self._lost_count > 1:
            wait_ms = env.jitter() * self._lost_count * self._commit_ms
            env.sleep_s(min(wait_ms, self._store.options.commit_max_retry_wait_ms) / 1000)
        if not self._overtaken_by.isdisjoint(self._first.last_commits.users):
            latest, waited = self._neighbours.look().latest_id, 0.0
            while waited < 1 and not self._store.snapshots.exists(latest + 1):
                env.sleep_s(_STEP * self._commit_ms * env.jitter() / 1000)
                waited += _STEP / 2

    def _makes_no_pause(self) -> bool:
        return self._won_ms is not None and self._store.env.now_ms() - self._won_ms < PAUSE * self._commit_ms

    @property
    def _commit_ms(self) -> int:
        return max(1, min(self._spent_ms, default=1))

    def _wait(self, view: TableView) -> TableView:
        env, waited, looked_ms = self._store.env, 0.0, view.seen_ms
        while ahead := users_ahead(view.last_commits.users, self._commit_user, self._absent_ms):
            if waited > len(ahead):
                self._absent_ms = ahead
                break
            if not waited and len(ahead) == 1:
                self._read(view)
            share = _STEP if waited else _SHARE * len(ahead)
            env.sleep_s(share * self._commit_ms * (0.9 + 0.2 * env.jitter()) / 1000)
            is_fresh = env.now_ms() - looked_ms < VIEW_MS
            looked_ms = looked_ms if is_fresh else env.now_ms()
            newer = look_again(self._store, view, steps_once=len(ahead) == 1) if is_fresh else look(self._store)
            if newer.latest_id == view.latest_id:
                waited += share
            else:
                waited = 0.0
                self._neighbours.check_others(newer)
            view = newer
        self._read(view)
        return view

    def _read(self, view: TableView) -> None:
        """Reads what a commit upon the latest snapshot needs of it; best effort."""
        if view.latest is not None:
            with suppress(StorageError):
                data_manifests_at_once(self._store.manifests, view.latest)
                self._store.live.follow(view.latest)
