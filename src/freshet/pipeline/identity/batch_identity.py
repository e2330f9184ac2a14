"""What distinguishes a batch of a query from all others; its commits carry it next to the commit user.

A batch whose number is committed is a replay, or, where it is not noted what was read, perhaps another batch. The
storage refuses a batch of a known number that read something else, where both sides have a digest. Where one has none
(Spark gave no offsets, the commit is of a release that knew no digests, or it is older than those kept) the batch is
passed over all the same, and a warning says so.
"""

from __future__ import annotations

from freshet._frozen import Frozen
from freshet.storage.table_engine import CommitCheck, CommitDigest


class BatchIdentity(Frozen):
    """`query_id` is Spark's id of the streaming query, `digest` what the batch read, None where Spark does not say."""

    micro_batch_id: int
    query_id: str | None
    digest: CommitDigest | None


def is_same_input(check: CommitCheck, micro_batch_id: int, digest: CommitDigest | None) -> bool:
    """True where it is proven that the committed batch of this number read the same."""
    known = None if check.last is None else dict(check.last.digests).get(micro_batch_id)
    return digest is not None and known is not None and known.hash == digest.hash


def unproven_replay_text(table: str, commit_user: str, micro_batch_id: int) -> str:
    """The warning about a replay that cannot be compared with what was committed."""
    return (
        f"table {table}: batch {micro_batch_id} of {commit_user!r} was committed before, so its rows were not written; "
        "whether it read the same records then is not known. Where rows are missing in the table, the checkpoint was "
        "restored or belongs to another query: start with another commit user and set where it begins to read"
    )
