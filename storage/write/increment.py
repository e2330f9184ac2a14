"""What a writer changed in one bucket since its last commit message, and which files are only its own so far.

    AppendIncrement     new files; the APPEND snapshot
    CompactIncrement    rounds of compaction; the COMPACT snapshot, each round may be dropped apart

A round says which files leave the bucket and which enter it. A round that takes up the output of an earlier one, or has
looked keys up in it, is joined with that: several rounds between two commits show as one, outputs between them
disappear, and their bytes go at once, unless the name lives on, as an input that was only moved or as an output of the
later round. A file that only changed its level is never deleted.

Changelog files go with what they tell of: those of written rows with the APPEND, those of a compaction with its round.
Joined rounds keep the changelogs of both, in order, because each round told only what it changed; a dropped round takes
its own along, and whatever compacts its inputs later tells their changes again.

A round is dropped when files that it needs are gone from the committed bucket. Rounds of a primary-key table come one
upon the other (which deletes may be dropped depends on the levels below), so the later ones go with it; those of append
tables have nothing in common.

Source: MERGING.md §1.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.write.told_rows import ToldRows

NO_MARKS: Final[Mapping[str, Bitmap32]] = MappingProxyType({})

FileId = tuple[str, int]
"""(name, level): a file that was moved to another level is another one here."""


@dataclass(slots=True)
class AppendIncrement:
    """Files with new rows."""

    new_files: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    told: ToldRows = field(default_factory=ToldRows)
    """Rows of these files that are to be logged."""

    @property
    def is_empty(self) -> bool:
        """True when there are none."""
        return not (self.new_files or self.changelog)


@dataclass(slots=True)
class CompactionRound:
    """`before` leaves the bucket, `after` enters it. `lookups` are names of committed files in which keys were looked
    up; they must still be there when the round is committed. `changelog` are the changelog files of the round. `marks`
    are rows of files that stay whose place was taken; `index_files` names the committed deletion vectors that the round
    was made upon: other ones may mark rows that it has written again.
    """

    before: dict[FileId, DataFileMeta]
    after: list[DataFileMeta]
    lookups: set[str] = field(default_factory=set)
    changelog: list[DataFileMeta] = field(default_factory=list)
    marks: dict[str, Bitmap32] = field(default_factory=dict)
    index_files: frozenset[str] = frozenset()
    told: ToldRows = field(default_factory=ToldRows)

    @property
    def outputs(self) -> list[DataFileMeta]:
        """Data files whose bytes exist only because of the round: what it wrote, not what it moved."""
        moved = {name for name, _ in self.before}
        return [file for file in self.after if file.file_name not in moved]

    @property
    def own_files(self) -> list[DataFileMeta]:
        """The outputs and the changelog files."""
        return [*self.outputs, *self.changelog]

    @property
    def gone(self) -> set[str]:
        """Names of the data files that are no part of the bucket after the round."""
        return {name for name, _ in self.before} - {file.file_name for file in self.after}

    def fits_on(self, present: set[FileId], index_files: frozenset[str]) -> bool:
        """True when every file that the round needs is among those present, and the deletion vectors are the same."""
        names = {name for name, _ in present}
        return self.before.keys() <= present and self.lookups <= names and self.index_files == index_files

    def mark(self, marks: Mapping[str, Bitmap32]) -> None:
        """More rows whose place was taken."""
        for name, rows in marks.items():
            self.marks[name] = rows | self.marks.get(name, Bitmap32())


@dataclass(slots=True)
class CompactIncrement:
    """Rounds in the order they were made. `is_ordered`: a round makes sense only upon the ones before it."""

    is_ordered: bool = True
    rounds: list[CompactionRound] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True when there are none."""
        return not self.rounds

    def add(
        self,
        before: Sequence[DataFileMeta],
        after: Sequence[DataFileMeta],
        lookups: Iterable[str] = (),
        changelog: Sequence[DataFileMeta] = (),
        marks: Mapping[str, Bitmap32] = NO_MARKS,
        index_files: frozenset[str] = frozenset(),
        told: ToldRows | None = None,
    ) -> list[DataFileMeta]:
        """Adds a round; returns the files whose bytes nobody needs any more."""
        names = set(lookups)
        taken = {_id(file) for file in before}
        joined = CompactionRound({}, [], index_files=index_files)
        kept: list[CompactionRound] = []
        for earlier in self.rounds:
            outputs = {_id(file) for file in earlier.after}
            if outputs & taken or {name for name, _ in outputs} & names:
                joined.before.update(earlier.before)
                joined.after += earlier.after
                joined.lookups |= earlier.lookups
                joined.changelog += earlier.changelog
                joined.told.join(earlier.told)
                joined.mark(earlier.marks)
            else:
                kept.append(earlier)
        between = {_id(file) for file in joined.after}
        moved = {name for name, _ in joined.before}
        outputs_now = {file.file_name for file in after}
        obsolete = [
            file
            for file in before
            if _id(file) in between and file.file_name not in moved and file.file_name not in outputs_now
        ]
        joined.lookups |= names - {file.file_name for file in joined.outputs}
        joined.before.update({_id(file): file for file in before if _id(file) not in between})
        joined.after = [file for file in joined.after if _id(file) not in taken] + list(after)
        joined.changelog += changelog
        joined.told.join(told or ToldRows())
        joined.mark(marks)
        for file in before:
            if file.file_name not in outputs_now:
                joined.marks.pop(file.file_name, None)
        self.rounds = [*kept, joined]
        return obsolete

    def drop_unfit(self, present: set[FileId], index_files: frozenset[str]) -> list[DataFileMeta]:
        """Drops the rounds that do not fit on these files, and those that depend on them; returns their own files."""
        kept: list[CompactionRound] = []
        dropped: list[CompactionRound] = []
        for each in self.rounds:
            is_unfit = not each.fits_on(present, index_files) or (self.is_ordered and bool(dropped))
            (dropped if is_unfit else kept).append(each)
        self.rounds = kept
        return [file for each in dropped for file in each.own_files]


class Increment:
    """Both halves of the changes of one bucket that no message names yet."""

    def __init__(self, *, is_ordered: bool = True) -> None:
        self.append = AppendIncrement()
        self.compact = CompactIncrement(is_ordered)

    @property
    def is_empty(self) -> bool:
        """True when nothing changed."""
        return self.append.is_empty and self.compact.is_empty

    def add_new_files(self, files: Sequence[DataFileMeta], changelog: Sequence[DataFileMeta] = ()) -> None:
        """Files that hold new rows, and their changelog files."""
        self.append.new_files.extend(files)
        self.append.changelog.extend(changelog)

    def add_compaction(
        self,
        before: Sequence[DataFileMeta],
        after: Sequence[DataFileMeta],
        lookups: Iterable[DataFileMeta] = (),
        changelog: Sequence[DataFileMeta] = (),
        marks: Mapping[str, Bitmap32] = NO_MARKS,
        index_files: frozenset[str] = frozenset(),
        told: ToldRows | None = None,
    ) -> list[DataFileMeta]:
        """One round; returns the files whose bytes nobody needs any more."""
        new = {file.file_name for file in self.append.new_files}
        names = {file.file_name for file in lookups} - new
        return self.compact.add(before, after, names, changelog, marks, index_files, told)

    def own_files(self) -> list[DataFileMeta]:
        """Files that exist only because of this increment."""
        rounds = (file for each in self.compact.rounds for file in each.own_files)
        return [*self.append.new_files, *self.append.changelog, *rounds]

    def applied_to(self, committed: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        """The files of the bucket as this writer sees them: what is committed, with the changes."""
        gone = {file_id for each in self.compact.rounds for file_id in each.before}
        kept = [file for file in (*committed, *self.append.new_files) if _id(file) not in gone]
        return kept + [file for each in self.compact.rounds for file in each.after]

    def drop_unfit(
        self, committed: Sequence[DataFileMeta], index_files: frozenset[str] = frozenset()
    ) -> list[DataFileMeta]:
        """Drops rounds that do not fit on these committed files and names of index files with deletion vectors; returns
        outputs whose bytes nobody needs then.
        """
        return self.compact.drop_unfit({_id(file) for file in (*committed, *self.append.new_files)}, index_files)

    def told(self) -> tuple[ToldRows, ToldRows]:
        """What is to be logged of the two halves; the files that it stands in are those of the next message."""
        compacted = ToldRows()
        for each in self.compact.rounds:
            compacted.join(each.told)
        return self.append.told, compacted

    def take_message(self, partition: bytes, bucket: int, total_buckets: int) -> CommitMessage:
        """The message, after which this is empty."""
        rounds = self.compact.rounds
        message = CommitMessage(
            partition,
            bucket,
            total_buckets,
            new_files=tuple(self.append.new_files),
            changelog_files=tuple(self.append.changelog),
            compact_before=tuple(file for each in rounds for file in each.before.values()),
            compact_after=tuple(file for each in rounds for file in each.after),
            compact_changelog_files=tuple(file for each in rounds for file in each.changelog),
            compact_lookups=tuple(sorted({name for each in rounds for name in each.lookups})),
        )
        self.append.new_files = []
        self.append.changelog = []
        self.append.told = ToldRows()
        self.compact.rounds = []
        return message


def _id(file: DataFileMeta) -> FileId:
    return (file.file_name, file.level)
