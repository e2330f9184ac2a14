"""The commits of edits: under one user and the next number, whoever else edits the table at the same time.

An edit is one call of a person, who sees whether it came to its end; nothing replays it. Its user is the same for all
edits, since snapshots carry the last commit of every user for ever (`commit.last_commits`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from freshet.storage.cleaning.partition_expiry import expire_partitions_at_end
from freshet.storage.commit.committer import CommitResult, Committer, Renumber
from freshet.storage.edits.outdated_plan import OutdatedPlanError
from freshet.storage.exceptions import ConflictError, MisfitError, OutdatedAssignmentError
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.table_store import TableStore

EDIT_USER: Final = "freshet-edit"
"""The commit user of edits; part of what we write, do not change."""


def commit_edit(
    store: TableStore,
    commit: Callable[[Committer, int], CommitResult],
    discard: Callable[[], None] = lambda: None,
    *,
    renumber: Renumber | None = None,
) -> CommitResult:
    """What `commit` makes of a committer and a number, made again with the next number where another edit of the table
    has taken that one meanwhile.

    `discard` removes the files of the edit where a round has found that it does not fit any more, so that no snapshot
    can name them; at a store what was sent may arrive yet. After other errors they are left to orphan cleaning: a part
    of the commit may be there. `renumber` is that of the committer.
    """
    committer = Committer(
        store, EDIT_USER, renumber=renumber, after_commit=upkeep_later, at_end=expire_partitions_at_end
    )
    while True:
        last = committer.last_commit()
        try:
            result = commit(committer, 0 if last is None else last.identifier + 1)
        except ConflictError as conflict:
            if not store.env.is_remote and _is_settled(conflict):
                discard()
            raise
        if not result.already_committed:
            committer.finish()
            committer.check_last()
            store.env.finish_later()
            return result


def _is_settled(conflict: ConflictError) -> bool:
    """Whether no snapshot names the files of the edit; not where an earlier try has taken effect after all."""
    if isinstance(conflict, OutdatedAssignmentError):
        return conflict.is_certain
    return isinstance(conflict, OutdatedPlanError | MisfitError)
