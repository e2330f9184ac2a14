"""Writes the rows of commit messages again, with larger sequence numbers.

For messages whose rows other commits have overtaken (`commit.numbering`): the rows go into new files numbered above
what is live now, and are compacted, looked up and logged upon that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from freshet.storage.logs.writers import ChangeSink
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.compaction_limit import CompactionLimit
from freshet.storage.write.task_writer import TaskWriter


def renumbered(
    store: TableStore,
    messages: Sequence[CommitMessage],
    base: Snapshot | None,
    *,
    identifier: int,
    headroom: int,
    parallelism: int = 2,
    sink: ChangeSink | None = None,
    limit: CompactionLimit | None = None,
) -> list[CommitMessage]:
    """Messages with the same rows upon the snapshot `base`; what the messages given name stays.

    `headroom` is how far above the largest live number the rows go. With a `sink` the changes are logged as another
    attempt at the commit `identifier`.
    """
    with closing(TaskWriter(store, base_snapshot=base, parallelism=parallelism, sink=sink)) as writer:
        writer.take_back(messages, headroom=headroom)
        return writer.prepare_commit(identifier, limit=limit)
