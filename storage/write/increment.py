"""What a writer changed in one bucket since its last commit message, and which files are only its own so far.

    new file                       ADD in the message's new files
    round of compaction            its inputs go to compact_before, its outputs to compact_after, but an input that is
                                   itself an output not yet committed leaves compact_after instead, and its bytes go at
                                   once, unless the name lives on: as an input that was only moved, or as an output of
                                   this round

Thus several rounds between two commits show as one, and a file that only changed its level is never deleted.

Source: LSM semantics §1.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta


@dataclass(slots=True)
class Increment:
    """Changes not handed out yet."""

    new_files: list[DataFileMeta] = field(default_factory=list)
    compact_before: dict[str, DataFileMeta] = field(default_factory=dict)
    compact_after: list[DataFileMeta] = field(default_factory=list)
    lookups: set[str] = field(default_factory=set)
    """Committed files that rounds looked keys up in; they must still be there when the rounds are committed."""

    @property
    def is_empty(self) -> bool:
        """True when nothing changed."""
        return not (self.new_files or self.compact_before or self.compact_after)

    def add_new_files(self, files: Sequence[DataFileMeta]) -> None:
        """Files that hold new rows."""
        self.new_files.extend(files)

    def add_compaction(
        self, before: Sequence[DataFileMeta], after: Sequence[DataFileMeta], lookups: Iterable[DataFileMeta] = ()
    ) -> list[DataFileMeta]:
        """One round; returns the files whose bytes nobody needs any more."""
        own = {file.file_name for file in self.own_files()}
        self.lookups |= {file.file_name for file in lookups} - own
        outputs = {file.file_name for file in after}
        obsolete: list[DataFileMeta] = []
        for file in before:
            if file in self.compact_after:
                self.compact_after.remove(file)
                if file.file_name not in self.compact_before and file.file_name not in outputs:
                    obsolete.append(file)
            else:
                self.compact_before[file.file_name] = file
        self.compact_after.extend(after)
        return obsolete

    def drop_compaction(self) -> list[DataFileMeta]:
        """Forgets all rounds; returns the outputs, whose bytes nobody needs then."""
        outputs = [file for file in self.compact_after if file.file_name not in self.compact_before]
        self.compact_before.clear()
        self.compact_after.clear()
        self.lookups.clear()
        return outputs

    def own_files(self) -> list[DataFileMeta]:
        """Files that exist only because of this increment."""
        outputs = [file for file in self.compact_after if file.file_name not in self.compact_before]
        return [*self.new_files, *outputs]

    def applied_to(self, committed: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        """The files of the bucket as this writer sees them: what is committed, with the changes."""
        gone = {(file.file_name, file.level) for file in self.compact_before.values()}
        files = [*committed, *self.new_files]
        return [file for file in files if (file.file_name, file.level) not in gone] + self.compact_after

    def fits_on(self, committed: Sequence[DataFileMeta]) -> bool:
        """True when every input of the rounds is still there, committed or one of the new files, and every file that
        they looked keys up in.
        """
        there = {(file.file_name, file.level) for file in (*committed, *self.new_files)}
        names = {file.file_name for file in committed}
        return self.lookups <= names and all(
            (file.file_name, file.level) in there for file in self.compact_before.values()
        )

    def drain(self, partition: bytes, bucket: int, total_buckets: int) -> CommitMessage:
        """The message, after which this is empty."""
        message = CommitMessage(
            partition,
            bucket,
            total_buckets,
            new_files=tuple(self.new_files),
            compact_before=tuple(self.compact_before.values()),
            compact_after=tuple(self.compact_after),
            compact_lookups=tuple(sorted(self.lookups)),
        )
        self.new_files.clear()
        self.compact_before.clear()
        self.compact_after.clear()
        self.lookups.clear()
        return message
