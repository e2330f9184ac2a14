"""A committer in a process of its own: `python -m tests.kit.commit_worker LOCATION USER COUNT [compact] [NEW]`.

Appends one file per commit to bucket 0 of a hand-made table, identifiers from 0. With `compact` it replaces all live
files of bucket 1 by one at level 5 instead, under a commit user of its own, after adding a file there. Files are named
USER-NUMBER-<random>; what is committed already is left out. Prints the number of aborted compactions. After NEW
commits of its own it waits to be killed instead.
"""

from __future__ import annotations

import sys
from uuid import uuid4

from freshet.storage.cleaning.expire import expire_later
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_message import CommitMessage
from tests.kit.child_process import wait_to_be_killed
from tests.kit.hand_made import message, new_file


def batch_of(file_name: str) -> str:
    """USER-NUMBER of a file of this worker, whether or not a level follows the name."""
    return file_name.partition("@")[0].rpartition("-")[0]


def run(location: str, user: str, count: int, *, compacts: bool, new: int | None = None) -> int:
    """Commits `count` times; the number of aborted compactions. Never returns where `new` commits are made."""
    store = open_table_store(local_env(), location)
    committer = Committer(store, user, query_id="q", after_commit=expire_later)
    aborted = done = 0
    for number in range(count):
        if committer.has_committed(number).is_committed:
            continue
        if done == new:
            wait_to_be_killed()
        done += 1
        name = f"{user}-{number}-{uuid4().hex[:8]}"
        made = compaction(store, name) if compacts else append(store, name)
        aborted += bool(committer.commit(number, [made]).aborted_compactions)
    store.env.finish_later()  # expiry: who looks at the table next sees it at rest
    return aborted


def append(store: TableStore, name: str) -> CommitMessage:
    """One more file in bucket 0."""
    return message(store, new=[new_file(store, name)])


def compaction(store: TableStore, name: str) -> CommitMessage:
    """One more file in bucket 1, and everything there in one file."""
    entries = store.at_latest(lambda latest: live_entries(store.manifests, latest, buckets={1}))
    new = new_file(store, name, bucket=1, rows=0)
    after = new_file(store, f"{name}-c", bucket=1, level=5, rows=0)
    return message(store, bucket=1, new=[new], before=[*(entry.file for entry in entries), new], after=[after])


if __name__ == "__main__":
    own_commits = next((int(word) for word in sys.argv[4:] if word.isdecimal()), None)
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), compacts="compact" in sys.argv[4:], new=own_commits))
