"""What a writer changed in one bucket since its last commit message, and which files are only its own so far.

    AppendIncrement     new files; the APPEND snapshot
    CompactIncrement    rounds of compaction; the COMPACT snapshot, each round may be dropped apart

A round says which files leave the bucket and which enter it. A round that compacts the output of an earlier one, or has
looked keys up in it, is joined with that: several rounds between two commits show as one, outputs between them
disappear, and their bytes go at once, unless the name lives on, as an input that was only moved or as an output of the
later round. A file that only changed its level is never deleted.

Changelog files go with the rows whose changes they hold: those of written rows with the APPEND, those of a compaction
with its round. Joined rounds keep the changelogs of both, in order, because each round emitted only what it changed; a
dropped round takes its own along, and the next compaction of its inputs emits their changes again.

A round is dropped when files that it needs are gone from the committed bucket. Rounds of a primary-key table come one
upon the other (which deletes may be dropped depends on the levels below), so the later ones go with it; those of append
tables have nothing in common.

The index of a bucket has its deletion vectors while it is written: those committed, and what its compactions marked
since. Of a table with a primary key (`KeyValueIndex`) a commit message with compactions brings a new index file for the
whole bucket, in place of the one there, when

* rows were marked: they are to be left out;
* a file with marked rows was rewritten: its vector must go with it;
* level 0 was compacted into a level below the highest. Of two compactions that did not see each other's rows one must
  be dropped: a key that is new in both would be in two files, which no reader merges. As both replace the same index
  file, the commit refuses the later one. Outputs at the highest level need no such care: two of them with one key
  overlap, which is refused as well.

The vectors of an append table (`AppendIndex`) are those of other programs. A joined file is written without the rows
that were marked, so its inputs must take their vectors along: of the index files that have one, the vectors of other
data files go into a new index file, and the commit that replaces the data files replaces these index files too. A
bucket has one index file, the partition of a table without buckets several; those that no joined file is in stay. Where
another program has marked rows of an input meanwhile, the commit does not fit, and the compaction is dropped.

Source: MERGING.md §1.4; FORMAT.md §10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.compact.rewriter import CompactedFiles
from freshet.storage.exceptions import RetryableError
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionFacts
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileId
from freshet.storage.model.manifest import IndexFileMeta
from freshet.storage.options.core import CoreOptions

EMITTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one bucket, in each of the two halves of a commit."""


BucketLog = Callable[[pa.Table | pa.RecordBatch], None]
"""Logs rows of a bucket behind those before."""


class Logged(Enum):
    """Which rows of a bucket are logged."""

    NOTHING = "nothing"
    ROWS = "rows"
    """Those of new files."""
    CHANGELOG = "changelog"
    """Those of changelog files."""


def logged_rows(options: CoreOptions) -> Logged:
    """What is logged of a table; `check_log_options` has the table."""
    if not options.logs_changes:
        return Logged.NOTHING
    if options.has_primary_key and options.changelog_producer.emits.with_commit:
        return Logged.CHANGELOG
    return Logged.ROWS


@dataclass(slots=True)
class EmittedRows:
    """Rows that are to be logged, kept from when they are written until they are, in the order of their files.

    A round that is dropped takes its rows along. `is_complete` is False once there were too many to keep; they are read
    from the files then, but for the first `logged` ones.
    """

    tables: list[pa.Table | pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0
    is_complete: bool = True
    logged: int = 0

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Keeps some more, or none any more."""
        if not rows.num_rows:
            return
        self.size_bytes += rows.nbytes
        self.is_complete = self.is_complete and self.size_bytes <= EMITTED_BYTES_MAX
        if self.is_complete:
            self.tables.append(rows)
        else:
            self.tables.clear()

    def join(self, other: EmittedRows) -> None:
        """Rows that follow these."""
        self.size_bytes += other.size_bytes
        self.logged += other.logged
        self.is_complete = self.is_complete and other.is_complete and self.size_bytes <= EMITTED_BYTES_MAX
        self.tables = [*self.tables, *other.tables] if self.is_complete else []

    def take(self) -> list[pa.Table | pa.RecordBatch]:
        """The rows that are kept, which whoever takes them logs."""
        tables, self.tables = self.tables, []
        self.logged += sum(rows.num_rows for rows in tables)
        return tables


@dataclass(slots=True)
class AppendIncrement:
    """Files with new rows."""

    new_files: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    emitted: EmittedRows = field(default_factory=EmittedRows)
    """Rows of these files that are to be logged."""

    @property
    def is_empty(self) -> bool:
        """True when there are none."""
        return not (self.new_files or self.changelog)


@dataclass(slots=True)
class CompactionRound:
    """`before` leaves the bucket, `after` enters it. `lookups` are names of committed files in which keys were looked
    up; they must still be there when the round is committed. `changelog` are the changelog files of the round. `marks`
    are rows, of files that stay, that newer rows replace; `index_files` names the committed deletion vectors that the
    round was made upon: other ones may mark rows that it has written again.
    """

    before: dict[FileId, DataFileMeta]
    after: list[DataFileMeta]
    lookups: set[str] = field(default_factory=set)
    changelog: list[DataFileMeta] = field(default_factory=list)
    marks: dict[str, Bitmap32] = field(default_factory=dict)
    index_files: frozenset[str] = frozenset()
    emitted: EmittedRows = field(default_factory=EmittedRows)
    facts: list[CompactionFacts] = field(default_factory=list)

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
        """More rows that newer ones replace."""
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

    def add(self, new: CompactionRound) -> list[DataFileMeta]:
        """Adds a round; returns the files whose bytes are no longer needed."""
        joined = CompactionRound({}, [], index_files=new.index_files)
        kept: list[CompactionRound] = []
        for earlier in self.rounds:
            outputs = {file.file_id for file in earlier.after}
            if outputs & new.before.keys() or {name for name, _ in outputs} & new.lookups:
                joined.before.update(earlier.before)
                joined.after += earlier.after
                joined.lookups |= earlier.lookups
                joined.changelog += earlier.changelog
                joined.emitted.join(earlier.emitted)
                joined.facts += earlier.facts
                joined.mark(earlier.marks)
            else:
                kept.append(earlier)
        between = {file.file_id for file in joined.after}
        moved = {name for name, _ in joined.before}
        obsolete = [
            file
            for file_id, file in new.before.items()
            if file_id in between and file.file_name not in moved and file.file_name in new.gone
        ]
        joined.lookups |= new.lookups - {file.file_name for file in joined.outputs}
        joined.before.update({file_id: file for file_id, file in new.before.items() if file_id not in between})
        joined.after = [file for file in joined.after if file.file_id not in new.before] + new.after
        joined.changelog += new.changelog
        joined.emitted.join(new.emitted)
        joined.facts += new.facts
        joined.mark(new.marks)
        for name in new.gone:
            joined.marks.pop(name, None)
        self.rounds = [*kept, joined]
        return obsolete

    def give_up(self) -> list[DataFileMeta]:
        """Drops all rounds; returns their own files."""
        rounds, self.rounds = self.rounds, []
        return [file for each in rounds for file in each.own_files]

    def drop_unfit(self, present: set[FileId], index_files: frozenset[str]) -> list[DataFileMeta]:
        """Drops the rounds that do not fit on these files, and those that depend on them; returns their own files."""
        kept: list[CompactionRound] = []
        dropped: list[CompactionRound] = []
        for each in self.rounds:
            is_unfit = not each.fits_on(present, index_files) or (self.is_ordered and bool(dropped))
            (dropped if is_unfit else kept).append(each)
        if any(each.emitted.logged for each in dropped):
            raise RetryableError(
                "another writer has compacted the files of a compaction away whose changes are in the log already, and "
                "not committed; write the batch again: readers take back what it has logged"
            )
        self.rounds = kept
        return [file for each in dropped for file in each.own_files]


class Increment:
    """Both halves of the changes of one bucket that no message names yet."""

    def __init__(self, *, is_ordered: bool = True) -> None:
        self.append = AppendIncrement()
        self.compact = CompactIncrement(is_ordered)
        self.log: BucketLog | None = None
        """Takes rows to be logged as soon as nothing can make them others; None while no message is made."""

    def log_ahead(self, computed: EmittedRows | None = None) -> None:
        """Logs what is to be logged so far, and behind it what a round has computed, whose files come next."""
        waiting = [self.append.emitted, *(each.emitted for each in self.compact.rounds)]
        waiting += [] if computed is None else [computed]
        if self.log is not None and all(each.is_complete for each in waiting):
            for rows in (rows for each in waiting for rows in each.take()):
                self.log(rows)

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
        result: CompactedFiles,
        index_files: frozenset[str] = frozenset(),
        emitted: EmittedRows | None = None,
        facts: CompactionFacts | None = None,
    ) -> list[DataFileMeta]:
        """One round; returns the files whose bytes are no longer needed."""
        new = {file.file_name for file in self.append.new_files}
        return self.compact.add(
            CompactionRound(
                {file.file_id: file for file in result.before},
                list(result.after),
                {file.file_name for file in result.lookups} - new,
                list(result.changelog),
                dict(result.marks),
                index_files,
                emitted or EmittedRows(),
                [] if facts is None else [facts],
            )
        )

    def own_files(self) -> list[DataFileMeta]:
        """Files that exist only because of this increment."""
        rounds = (file for each in self.compact.rounds for file in each.own_files)
        return [*self.append.new_files, *self.append.changelog, *rounds]

    def give_up(self) -> list[DataFileMeta]:
        """Forgets everything; returns the files that existed only because of it."""
        own = self.own_files()
        self.append, self.compact = AppendIncrement(), CompactIncrement(self.compact.is_ordered)
        return own

    def applied_to(self, committed: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        """The files of the bucket as this writer sees them: what is committed, with the changes."""
        gone = {file_id for each in self.compact.rounds for file_id in each.before}
        kept = [file for file in (*committed, *self.append.new_files) if file.file_id not in gone]
        return kept + [file for each in self.compact.rounds for file in each.after]

    def drop_unfit(
        self, committed: Sequence[DataFileMeta], index_files: frozenset[str] = frozenset()
    ) -> list[DataFileMeta]:
        """Drops rounds that do not fit on these committed files and names of index files with deletion vectors; returns
        outputs whose bytes are no longer needed then.
        """
        return self.compact.drop_unfit({file.file_id for file in (*committed, *self.append.new_files)}, index_files)

    def emitted(self) -> tuple[EmittedRows, EmittedRows]:
        """What is to be logged of the two halves; the next message has the files that hold it."""
        compacted = EmittedRows()
        for each in self.compact.rounds:
            compacted.join(each.emitted)
        return self.append.emitted, compacted

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
            compactions=tuple(facts for each in rounds for facts in each.facts),
        )
        self.append.new_files = []
        self.append.changelog = []
        self.append.emitted = EmittedRows()
        self.compact.rounds = []
        return message


class _BucketIndex:
    def __init__(self, store: TableStore, index_files: Sequence[IndexFileMeta]) -> None:
        self._store = store
        self.vectors = BucketVectors(store.vectors, tuple(index_files))

    @property
    def names(self) -> frozenset[str]:
        """Names of the committed index files."""
        return frozenset(file.file_name for file in self.vectors.index_files)

    def _replaced(
        self, message: CommitMessage, replaced: tuple[IndexFileMeta, ...], vectors: Mapping[str, Bitmap32] | None
    ) -> CommitMessage:
        """The message with an index file for these vectors, None for no file, in place of others; what is committed
        then is known from now on."""
        is_64_bit = self._store.options.deletion_vectors_bitmap64
        written = () if vectors is None else (self._store.vectors.write(vectors, is_64_bit=is_64_bit),)
        kept = tuple(file for file in self.vectors.index_files if file not in replaced)
        self.vectors = BucketVectors(self._store.vectors, (*kept, *written))
        return replace(message, compact_new_index_files=written, compact_deleted_index_files=replaced)


class KeyValueIndex(_BucketIndex):
    """The deletion vectors of one bucket of a primary-key table; belongs to its writer."""

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
        return self._replaced(message, self.vectors.index_files, self.vectors.without(gone))


def _lies_below(each: CompactionRound, max_level: int) -> bool:
    """True when the round compacted level 0 and left something below the highest level."""
    takes_level_0 = any(level == 0 for _, level in each.before)
    return takes_level_0 and any(file.level < max_level for file in each.after)


class AppendIndex(_BucketIndex):
    """The deletion vectors of one bucket of an append table; belongs to its writer."""

    def completed(self, message: CommitMessage, rounds: Sequence[CompactionRound]) -> CommitMessage:
        """The message of these rounds, with the index files that change; those are the committed ones from then on."""
        gone = {name for each in rounds for name in each.gone}
        replaced = tuple(file for file in self.vectors.index_files if marked_files(file) & gone)
        if not replaced:
            return message
        return self._replaced(message, replaced, BucketVectors(self._store.vectors, replaced).without(gone) or None)


def marked_files(file: IndexFileMeta) -> frozenset[str]:
    """Names of the data files of which an index file marks rows."""
    return frozenset(vector.data_file_name for vector in file.deletion_vectors or ())
