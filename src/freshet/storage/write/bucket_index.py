"""The deletion vectors of one bucket while it is written: those committed, and what its compactions marked since.

A commit message with compactions brings a new index file for the whole bucket, in place of the one there, when

* rows were marked: they are to be left out;
* a file with marked rows was rewritten: its vector must go with it;
* level 0 was compacted into a level below the highest. Of two compactions that did not see each other's rows one must
  be dropped: a key that is new in both would be in two files, which no reader merges. As both replace the same index
  file, the commit refuses the later one. Outputs at the highest level need no such care: two of them with one key
  overlap, which is refused as well.

Source: FORMAT.md §10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import IndexFileMeta
from freshet.storage.write.increment import CompactionRound


class BucketIndex:
    """Belongs to one bucket writer of a table with deletion vectors."""

    def __init__(self, store: TableStore, index_files: Sequence[IndexFileMeta]) -> None:
        self._store = store
        self.vectors = BucketVectors(store.vectors, tuple(index_files))

    @property
    def names(self) -> frozenset[str]:
        """Names of the committed index files."""
        return frozenset(file.file_name for file in self.vectors.index_files)

    def rebase(self, index_files: Sequence[IndexFileMeta], rounds: Iterable[CompactionRound]) -> None:
        """Goes on with other committed vectors, and what these rounds marked."""
        self.vectors = BucketVectors(self._store.vectors, tuple(index_files))
        for each in rounds:
            self.vectors = self.vectors.marking(each.marks)

    def completed(self, message: CommitMessage, rounds: Sequence[CompactionRound], *, max_level: int) -> CommitMessage:
        """The message of these rounds, with the index file that it needs; that is the committed one from then on."""
        self.rebase(self.vectors.index_files, rounds)
        gone = {name for each in rounds for name in each.gone}
        gone -= {file.file_name for each in rounds for file in each.after}
        is_changed = any(each.marks for each in rounds) or bool(gone & self.vectors.marked_files)
        if not (is_changed or any(_lies_below(each, max_level) for each in rounds)):
            return message
        vectors = self.vectors.without(gone)
        written = self._store.vectors.write(vectors, is_64_bit=self._store.options.deletion_vectors_bitmap64)
        replaced, self.vectors = self.vectors.index_files, BucketVectors(self._store.vectors, (written,))
        return replace(message, compact_new_index_files=(written,), compact_deleted_index_files=replaced)


def _lies_below(each: CompactionRound, max_level: int) -> bool:
    """True when the round compacted level 0 and left something below the highest level."""
    takes_level_0 = any(level == 0 for _, level in each.before)
    return takes_level_0 and any(file.level < max_level for file in each.after)
