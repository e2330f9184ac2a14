"""What drives a table over many processes, such as Spark does; `Table.engine` gives it.

A program that reads and writes in one process needs nothing of it: `Table.scan`, `Table.stream`, `Table.writer`.

| step | where | names |
|---|---|---|
| plan | driver | `log`, `has_committed`, `latest_schema_id`, `is_rescaled`; for readers `split_stream` |
| write | task | `task_writer`, `renumbered`; `run_piece`, `run_background_unit`: what a driver chose |
| commit | driver | `complete_compaction`, `committer`, `show_hidden_rows`; `discard` where nothing is committed |
| compact | driver | `background_compaction`, between batches |
| look | anywhere | `warnings`, `level0_counts`, `commit_rows`, `marked_rows`, … |

    in each task     writer = engine.task_writer(base_snapshot_id=41)
                     writer.write_routed(rows, buckets, bucket_count=2)   any number of times
                     writer.rebase(table.latest_snapshot())
                     sent = encode_commit_messages(writer.prepare_commit(7))
    in the driver    committer = engine.committer("loader-1")
                     committer.commit(7, decode_commit_messages(sent))
                     engine.discard(messages)                      instead, where they will not be committed

Files are invisible until the driver has committed the messages that name them, so a task may run twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from freshet.storage.commit.commit_result import CommitCheck, CommitResult
from freshet.storage.commit.committer import Committer, Renumber
from freshet.storage.commit.last_commits import CommitTrace
from freshet.storage.compact.joint_changes import emits_jointly_by_lookup
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.logs.log_systems import LoggedSplitStream, TaskLog
from freshet.storage.metadata.consumer_store import Consumer
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.model.commit_message import (
    CommitDigest,
    CommitMessage,
    decode_commit_messages,
    encode_commit_messages,
)
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.model.split import ChangeSplit, Split
from freshet.storage.model.table_log import LogIdentity
from freshet.storage.options.risky import risky_options, unheeded_options
from freshet.storage.paths import bucket_name
from freshet.storage.scan.read_snapshot import find_snapshot
from freshet.storage.table_logs import TableLogs

if TYPE_CHECKING:
    from freshet.storage.changes.stream import SplitStream
    from freshet.storage.changes.stream_request import StreamRequest
    from freshet.storage.describe import CommitRows
    from freshet.storage.edits.batch_edit import BatchEdits
    from freshet.storage.maintenance.background_compaction import BackgroundCompaction, BackgroundUnit
    from freshet.storage.maintenance.table_compaction import Piece
    from freshet.storage.place_index.index_database import KeyShare
    from freshet.storage.write.commit_compaction import CompactionLimit
    from freshet.storage.write.dynamic_router import KeyAssigner
    from freshet.storage.write.moving_router import KeyMover
    from freshet.storage.write.task_writer import TaskWriter

__all__ = [
    "BatchFacts",
    "ChangeSplit",
    "CommitCheck",
    "CommitDigest",
    "CommitMessage",
    "CommitResult",
    "CommitTrace",
    "Committer",
    "LoggedSplitStream",
    "Split",
    "StreamLimit",
    "TableEngine",
    "TaskLog",
    "decode_commit_messages",
    "encode_commit_messages",
]
"""The engine of a table, and what its methods take and give."""

COMMITS_LOOKED_AT: Final = 100
"""A table without a compaction among so many commits is not compacted."""


class TableEngine:
    """What the driver and the tasks of an engine do with one table, at the schema of a `Table`."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"TableEngine({self._store.name!r})"

    @property
    def log(self) -> TableLogs:
        """The log of the table, where it has one (`log.system`): opened for drivers, and checked."""
        return TableLogs(self._store)

    @property
    def edits(self) -> BatchEdits:
        """Appends and overwrites of batch jobs, each one commit."""
        from freshet.storage.edits.batch_edit import BatchEdits

        return BatchEdits(self._store)

    def warnings(self) -> list[str]:
        """What a writer should be warned of: risky options, options without effect, former names of values."""
        options = self._store.options
        return [*risky_options(options), *unheeded_options(options)]

    @property
    def dynamic_options(self) -> Mapping[str, str]:
        """What was given with `Table.with_options`, besides the options of the table."""
        return self._store.dynamic_options

    def latest_schema_id(self) -> int | None:
        """Id of the newest schema, which may be newer than this object's; None where the table was dropped."""
        latest = self._store.schemas.latest()
        return None if latest is None else latest.id

    def created_ms(self) -> int:
        """When the table was created, in milliseconds since 1970: this distinguishes it from an earlier one of its
        name, and does not change when it is renamed.
        """
        return self._store.schemas.created_ms()

    def is_compacted(self, *, commits: int = COMMITS_LOOKED_AT) -> bool:
        """Whether one of the last commits was a compaction, as far as they are still there."""
        recent = islice(self._store.snapshots.newest_first(self._store.snapshots.latest()), commits)
        return any(snapshot.commit_kind is CommitKind.COMPACT for snapshot in recent)

    def is_rescaled(self) -> bool:
        """Whether a partition has another number of buckets than the option `bucket` says: a rescale rewrites one
        partition after the other. Rows for such a partition go to buckets by the number that its files have."""
        from freshet.storage.write.bucketing import BucketCounts

        return BucketCounts(self._store, self._store.snapshots.latest()).differ()

    def has_committed(self, commit_user: str, query_id: str | None, identifier: int) -> CommitCheck:
        """Whether a commit is there, as `Committer.has_committed` finds it and raises, where nothing is committed."""
        return Committer(self._store, commit_user, query_id).has_committed(identifier)

    def split_stream(self, request: StreamRequest | None = None) -> SplitStream | LoggedSplitStream:
        """The changes that `Table.stream` gives, as positions and splits for an engine with a checkpoint of its own.

        Raises as `Table.stream` does.
        """
        from freshet.storage.changes.stream_request import StreamRequest
        from freshet.storage.filters.filter_text import to_predicate

        request = request or StreamRequest()
        options = self._store.options
        if not request.upserts:
            from freshet.storage.changes.change_source import ChangeRules, check_has_changelog

            otherwise = "stream the rows as they are written, without those they replace: upserts=True"
            check_has_changelog(ChangeRules.of(options), self._store.name, otherwise)
        isolation = request.isolation or ("committed" if options.logs_changes else "none")
        request = replace(request, filter=to_predicate(request.filter))  # processes that read need not parse it
        if isolation.lower() != "none" and self.log.is_read(isolation):
            return self.log.split_stream(request, isolation)
        from freshet.storage.changes.stream import SplitStream

        return SplitStream(self._store, request)

    def task_writer(
        self,
        *,
        base_snapshot_id: int | None,
        parallelism: int = 1,
        log: TaskLog | None = None,
        name: str = "freshet",
        number: int = 0,
        upon_nothing: bool = False,
    ) -> TaskWriter:
        """Writes files for a commit that another process makes.

        Buckets are restored from the snapshot named, or the latest where that has expired; None is a table without any.
        `log` is what the driver says of the log of the table, where it has one (`log.open`). Of a table with postponed
        buckets the rows wait, in files of the writer of this name and number: those of a key belong to one number.
        `upon_nothing`: the rows replace what is there, and are written as into an empty table.
        """
        from freshet.storage.write.bucket_state import BucketStates
        from freshet.storage.write.task_writer import TaskWriter
        from freshet.storage.write.unmerged_bucket_writer import Staging

        base_id = None if upon_nothing else base_snapshot_id
        base = None if base_id is None else self._store.snapshots.or_latest(base_id)
        staging = Staging(name, number) if self._store.options.has_postponed_buckets else None
        sink = self.log.task_sink(log)
        states = BucketStates() if upon_nothing else None
        return TaskWriter(
            self._store, base_snapshot=base, parallelism=parallelism, states=states, sink=sink, staging=staging
        )

    def key_assigner(self, *, base_snapshot_id: int | None, count: int, upon_nothing: bool = False) -> KeyAssigner:
        """One of `count` assigners of each partition of a table with dynamic buckets, for rows that other tasks write.

        Buckets follow from the snapshot named, which is not replaced by a later one; `upon_nothing` is as for
        `task_writer`.
        """
        from freshet.storage.write.dynamic_router import KeyAssigner

        return KeyAssigner(self._store, base_snapshot_id, count, upon_nothing=upon_nothing)

    def consumers(self) -> list[Consumer]:
        """Streaming readers that have a name, with the time at which each read on last."""
        return self._store.consumers.all()

    def index_names(self, entry: ManifestEntry) -> dict[str, list[str]]:
        """The types of indexes that a data file has, by column."""
        from freshet.storage.files.file_evidence import FileEvidence

        return FileEvidence(self._store).names(entry.bucket_id, entry.file)

    @property
    def moves_rows(self) -> bool:
        """Whether rows of the table move between partitions."""
        return self._store.moves_rows

    def key_mover(self, *, base_snapshot_id: int | None, share: KeyShare) -> KeyMover:
        """The places of a share of the keys of a table whose rows move between partitions, for rows that other tasks
        write. They follow from the snapshot named, which is not replaced by a later one."""
        from freshet.storage.write.moving_router import KeyMover

        return KeyMover(self._store, base_snapshot_id, share)

    def renumbered(
        self,
        identifier: int,
        messages: Sequence[CommitMessage],
        *,
        base_snapshot_id: int,
        headroom: int,
        log: TaskLog | None = None,
        limit: CompactionLimit | None = None,
    ) -> list[CommitMessage]:
        """The rows of messages that task writers have made, renumbered upon a snapshot and `headroom` above what is
        live there: what a committer asks its `renumber` for, in this or another process. `log` is as for `task_writer`.
        """
        from freshet.storage.write.renumbering import renumbered

        base = self._store.snapshots.or_latest(base_snapshot_id)
        return renumbered(
            self._store,
            messages,
            base,
            identifier=identifier,
            headroom=headroom,
            parallelism=1,
            sink=self.log.task_sink(log),
            limit=limit,
        )

    def run_piece(self, piece: Piece) -> list[CommitMessage]:
        """Does a piece of work here, for the process whose `Table.compact` or `Table.rescale` has sent it elsewhere."""
        from freshet.storage.maintenance.bucket_rescale import BucketRescale, rescale_buckets

        if isinstance(piece, BucketRescale):
            return rescale_buckets(self._store, piece)
        from freshet.storage.maintenance.postponed_compaction import PostponedPartition, compact_postponed

        if isinstance(piece, PostponedPartition):
            return compact_postponed(self._store, piece)
        from freshet.storage.maintenance.table_compaction import compact_bucket

        return compact_bucket(self._store, piece)

    def run_background_unit(self, unit: BackgroundUnit) -> list[CommitMessage]:
        """Runs a compaction unit that `BackgroundCompaction` has chosen, in this process or another one."""
        from freshet.storage.maintenance.background_compaction import run_background_unit

        return run_background_unit(self._store, unit)

    def committer(
        self,
        commit_user: str,
        query_id: str | None = None,
        *,
        log: LogIdentity | None = None,
        renumber: Renumber | None = None,
    ) -> Committer:
        """Commits what task writers have made; `query_id` distinguishes streaming queries of one name. `log` is that of
        the table, where it has one (`log.open`). `renumber` writes files again whose rows others have overtaken, by
        default in this process; a table with a log has no default."""
        from freshet.storage.cleaning.partition_expiry import expire_partitions_at_end
        from freshet.storage.maintenance.upkeep import upkeep_later

        self.log.check_logs(log is not None)
        renumber = renumber or (None if log else self._renumbered_here)
        return Committer(
            self._store,
            commit_user,
            query_id,
            log,
            renumber,
            upkeep_later,
            at_end=expire_partitions_at_end,
        )

    def _renumbered_here(
        self, identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        return self.renumbered(identifier, messages, base_snapshot_id=base_id, headroom=headroom)

    def complete_compaction(self, identifier: int, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Messages to commit with those of task writers, where `full-compaction.delta-commits` has this commit compact
        the whole table: the buckets that none of them wrote are compacted here and now. None where nothing is due.
        """
        if self._store.options.full_compaction_delta_commits is None and not emits_jointly_by_lookup(self._store):
            return []  # most tables: what compacts is not loaded for them
        from freshet.storage.maintenance.table_compaction import complete_compaction

        return complete_compaction(self._store, identifier, messages)

    def show_hidden_rows(self, committer: Committer, identifier: int, result: CommitResult) -> CommitResult:
        """What a driver calls after its commit: compacts rows of it that readers do not see yet, where level 0 is
        hidden and the compaction of the commit was lost to another one. The result says what is hidden still."""
        from freshet.storage.maintenance.upkeep import show_hidden_rows

        return show_hidden_rows(self._store, committer, identifier, result)

    def discard(self, messages: Sequence[CommitMessage]) -> None:
        """Removes the files of messages that will not be committed."""
        discard_messages(self._store, messages)

    def background_compaction(self, commit_user: str) -> BackgroundCompaction:
        """Compaction between the batches of this process, under a commit user of its own.

        Raises `InvalidRequestError` where the compactions of this table must stay in its batches.
        """
        from freshet.storage.maintenance.background_compaction import BackgroundCompaction

        return BackgroundCompaction(self._store, commit_user)

    def commit_rows(self, snapshot: Snapshot) -> CommitRows:
        """How many rows the commit of a snapshot wrote and deleted, as far as its files say."""
        from freshet.storage.describe import commit_rows

        return commit_rows(self._store, snapshot)

    def marked_rows(self, *, snapshot_id: int | None = None) -> dict[str, int]:
        """How many rows deletion vectors mark as deleted, by name of the data file; others have none."""
        from freshet.storage.describe import marked_row_counts

        snapshot = find_snapshot(self._store.snapshots, snapshot_id=snapshot_id)
        return marked_row_counts(self._store, snapshot)

    def level0_counts(self, snapshot: Snapshot, buckets: Iterable[tuple[bytes, int]]) -> list[int]:
        """Number of level-0 files of each bucket named; other buckets are not looked at, however many there are."""
        wanted = list(buckets)
        live = self._store.live.of_buckets(snapshot, wanted)
        return [sum(file.level == 0 for file in live.files_of(*bucket)) for bucket in wanted]

    def partition_path(self, partition: bytes) -> str:
        """Folder of a serialized partition below the table, such as `dt=2024-01-01`; empty where there is none."""
        return self._store.partition_path(partition)

    def bucket_label(self, partition: bytes, bucket: int) -> str:
        """The bucket for people, such as `dt=2024-01-01/3`; `postpone` where rows wait for their buckets."""
        from freshet.storage.describe import partition_label

        return partition_label(self._store, partition) + bucket_name(bucket)
