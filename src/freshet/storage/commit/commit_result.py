"""Answers of a committer: what a commit has made, and whether one is there already."""

from __future__ import annotations

from dataclasses import dataclass, field

from freshet._frozen import Frozen
from freshet.storage.commit.conflict import Conflict
from freshet.storage.commit.last_commits import CommitTrace
from freshet.storage.exceptions import StorageError
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.display import ids_text
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import Snapshot


class CommitCheck(Frozen):
    """Whether an identifier is committed, and the last commit of its user that the table knows.

    `latest` is the snapshot that says so, None for a table without any.
    """

    is_committed: bool
    last: CommitTrace | None
    latest: Snapshot | None


@dataclass(frozen=True, slots=True, repr=False)
class CommitResult(Shown):
    """`snapshots` in order of their ids; empty when the commit was there already, or was empty and not forced."""

    snapshots: tuple[Snapshot, ...]
    already_committed: bool = False
    aborted_compactions: tuple[Conflict, ...] = ()
    rewrite_count: int = 0
    """How often files were written again because others had committed rows with their numbers."""
    rewritten_bytes: int = 0
    messages: tuple[CommitMessage, ...] = field(default=(), repr=False)
    """What was committed: those given, but for files that were written again."""
    hidden_buckets: tuple[BucketId, ...] = ()
    """Buckets whose new rows readers do not see before the next compaction."""
    hidden_cause: StorageError | None = field(default=None, repr=False)
    """The error that ended their compaction, where it was none of others who were first."""

    def _shown(self) -> Facts:
        yield from (("snapshots", ids_text(each.id for each in self.snapshots)), ("was there", self.already_committed))
        yield from (("compactions dropped", len(self.aborted_compactions)), ("files written again", self.rewrite_count))
        yield ("buckets whose new rows wait for a compaction", len(self.hidden_buckets))
