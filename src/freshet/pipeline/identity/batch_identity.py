"""What distinguishes a batch of a query from all others; its commits carry it next to the commit user."""

from __future__ import annotations

from freshet._frozen import Frozen
from freshet.storage.table_engine import CommitDigest


class BatchIdentity(Frozen):
    """`query_id` is Spark's id of the streaming query, `digest` what the batch read, None where Spark does not say."""

    micro_batch_id: int
    query_id: str | None
    digest: CommitDigest | None
