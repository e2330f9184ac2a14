"""A table: what people hold to write, read, look at, change and look after it.

The object is a view of one schema, taken when it was opened; `alter` gives a new one. It keeps no files open and may be
shared by threads; writers and scans may not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from freshet.storage.catalogs.claims import coordinated
from freshet.storage.cleaning.orphan_files import DEFAULT_AGE_MS, OrphanResult, remove_orphan_files
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.lost_commits import lost_commit_named, the_lost_commit
from freshet.storage.editable_table import EditableTable
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import Env, absolute_path
from freshet.storage.io.shown_work import Advance, at_work, show_work
from freshet.storage.metadata.branch_store import Branches
from freshet.storage.metadata.table_handle import TableHandle
from freshet.storage.metadata.table_store import open_store, open_table_store
from freshet.storage.model.arguments import answering_callers
from freshet.storage.options.values import option_texts

if TYPE_CHECKING:
    from freshet.storage.cleaning.expire import ExpireResult
    from freshet.storage.cleaning.partition_expiry import PartitionExpiry
    from freshet.storage.maintenance.manifest_compaction import ManifestCompaction
    from freshet.storage.maintenance.partition_choice import PartitionChoice, PartitionValue
    from freshet.storage.maintenance.repairs import HashIndexRepair
    from freshet.storage.maintenance.rescale import RescaleCallback, RescaleProgress, RescaleResult
    from freshet.storage.maintenance.table_compaction import (
        CompactionBudget,
        CompactionProgress,
        CompactionResult,
        Elsewhere,
        ProgressCallback,
    )
    from freshet.storage.schema.change import SchemaChange
    from freshet.storage.table_session import TableSession
    from freshet.storage.tags.table_tags import TableTags

__all__ = ["Branches", "Table", "TableHandle", "show_work"]
"""The table, and what its methods take and give."""

_LOG: Final = logging.getLogger(__name__)


@answering_callers
class Table(EditableTable):
    """One table of a warehouse; `Catalog.table` and `Catalog.create_table` give it.

        orders = Catalog("/data/lake").table("shop.orders")
        orders.upsert([{"id": 1, "total": 9.5}, {"id": 2, "total": 3}])
        orders.scan(["id"], "total > 5").to_pandas()
        orders.delete("id = 1")
        orders.rollback(to=1)

    What it is: `name`, `location`, `schema`, `arrow_schema`, `options`, `describe`, `facts`, `system`.
    How it is: `status`, `doctor`.
    Rows and changes: `scan`, `lookup`, `stream`, `changelog`, `changes_between`.
    Other rows: `append`, `upsert`, `update`, `delete`, `merge`, `overwrite`, `truncate`, `drop_partition`, `writer`.
    Its history: `snapshots`, `latest_snapshot`, `tags`, `branches`, `rollback`.
    Columns and options: `alter`, `with_options`.
    Care: `files`, `compact`, `compact_manifests`, `sort_compact`, `rescale`, `expire_snapshots`, `expire_partitions`,
    `mark_partition_done`, `remove_orphan_files`, `purge`, `consumers`, `reset_consumer`, `delete_consumer`.
    Damage: `check`, `repair`, `repair_hash_indexes`, `lost_commits`, `lost_commit`, `repair_lost_commit`.
    Other processes and engines: `open`, `handle`, `of`, `engine`, `without_log`.

    A call that changes something has done so when it returns, and says what it did. Errors are a `StorageError`, of a
    kind that says whether to try again.
    """

    @classmethod
    def open(
        cls,
        location: str | PathLike[str],
        *,
        options: Mapping[str, object] | None = None,
        schema_id: int | None = None,
        name: str | None = None,
        catalog_options: Mapping[str, object] | None = None,
        env: Env | None = None,
    ) -> Table:
        """Opens the table in a folder, for callers that know the folder and not the warehouse, such as a Spark worker.

        `options` override the table's own for this object only, `schema_id` chooses a schema that is not the latest,
        and `name` is what messages call the table, its folder if not given. A relative location is taken against the
        current folder. `catalog_options` are those of `Catalog`; where they, or FRESHET_CATALOG_OPTIONS, name a catalog
        that locks its tables, the table is written with its lock, or not at all.
        Raises `NotFoundError` when there is no table, `UnsupportedFeatureError` when it cannot be read rightly.
        """
        texts, catalog_texts = option_texts(options), option_texts(catalog_options)
        folder = absolute_path(fspath(location))
        if env is not None and catalog_texts:
            raise InvalidRequestError("give env= or catalog_options=, not both: an Env is made from its own settings")
        from freshet.storage.catalogs.given import TableAt, table_at

        found = TableAt(env) if env is not None else table_at(folder, catalog_texts)
        return cls(
            open_table_store(
                found.env,
                folder,
                options=texts or None,
                schema_id=schema_id,
                name=found.name or name,
                claims=found.claims,
            )
        )

    @classmethod
    def of(cls, handle: TableHandle) -> Table:
        """The table of a handle, in any process; raises where it was dropped or created again meanwhile."""
        return cls(open_store(handle))

    @property
    def branches(self) -> Branches:
        """The branches of the table: `list`, `create`, `rename`, `drop`. One is opened as
        `database.table$branch_<name>`, and is a table of its own: what is written to it, altered and expired is not the
        table's."""
        return Branches(self.store)

    @property
    def tags(self) -> TableTags:
        """The names of snapshots: list, create, replace, rename and delete them."""
        from freshet.storage.tags.table_tags import TableTags

        return TableTags(self.store)

    def writer(
        self, commit_user: str, *, parallelism: int = 2, coordination: str | None = None, adopt: bool = False
    ) -> TableSession:
        """Writes and commits rows under a name of the caller's; `parallelism` is the number of threads.

        `coordination` says how the writers of a table in an object store keep out of each other's way
        (`commit.coordination`), by default as its catalog says. `adopt` takes over a table that programs without
        conditional puts have written, which write no more.
        """
        if coordination is not None or adopt:
            claims = coordinated(self.store.claims, coordination, adopt=adopt)
            return Table(replace(self.store, claims=claims)).writer(commit_user, parallelism=parallelism)
        from freshet.storage.table_session import TableSession

        self.store.check_writable()
        engine = self.engine
        for warning in engine.warnings():
            _LOG.warning("table %s: %s", self.name, warning)
        publisher = engine.log.open_publisher() if self.options.publishes_changes else None
        for warning in publisher.warnings if publisher is not None else ():
            _LOG.warning("table %s: %s", self.name, warning)
        return TableSession(
            self.store,
            commit_user,
            parallelism=parallelism,
            open_log=engine.log.open if self.options.logs_changes else None,
            publisher=publisher,
        )

    def without_log(self) -> Table:
        """The same table, for commits of users other than the one who logs: they are not logged, and readers of the log
        do with them what `log.on-lake-only` says.

        Of a table that publishes, they are published with the next commit of the writer that publishes.

        Raises `InvalidRequestError` where that is `fail`: readers would stop at such a commit.
        """
        if not self.options.logs_changes and not self.options.publishes_changes:
            return self
        return self.with_options(self.engine.log.options_without())

    def compact(
        self,
        *,
        full: bool = True,
        partition: PartitionChoice | None = None,
        budget: CompactionBudget | None = None,
        progress: ProgressCallback | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> CompactionResult:
        """Compacts bucket by bucket, the one with most to do first: fully, or only where the picking rule asks for it.

        It commits as it goes, under a user of its own, and stops where the budget is used up. A bucket that another
        job compacts meanwhile is left to it. `partition` is a serialized partition row, or partition keys with their
        values or their texts (`{"dt": "2026-11-22"}`); None is all of them. `elsewhere` hands the work on.

        It works at the newest schema, whatever this object was opened at. Raises `ConflictError` when rows of a later
        one come while it runs.
        """
        store = self.store.at_latest_schema()
        store.check_writable()
        with store.naming_dropped_table(), at_work(f"compacting {self.name}") as advance:
            from freshet.storage.maintenance.table_compaction import compact_table

            result = compact_table(
                store,
                full=full,
                partition=partition,
                budget=budget,
                progress=progress or partial(_advance_bytes, advance),
                elsewhere=elsewhere,
            )
        store.env.finish_later()
        return result

    def rescale(
        self,
        bucket: int,
        *,
        partition: PartitionChoice | None = None,
        progress: RescaleCallback | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> RescaleResult:
        """Gives the table another fixed number of buckets: first the option, then the partitions, one commit each.

        No row changes and no change is emitted. What is interrupted goes on with the next call; in between each
        partition is read and written with the number that it has. A partition that others commit to meanwhile is done
        again; their writers are refused while rows wait that were meant for its old buckets, and go on when they are
        started again. `partition` chooses those that are rewritten; the rest is as in `compact`.

        Raises `InvalidRequestError` from and to `bucket=-1`, `UnsupportedFeatureError` for a table with a log,
        `ConflictError` when others commit to a partition all the time or rescale the table to another number.
        """
        with self.store.naming_dropped_table(), at_work(f"rescaling {self.name}") as advance:
            from freshet.storage.maintenance.rescale import rescale

            shown = progress or partial(_advance_bytes, advance)
            return rescale(self.store, bucket, partition=partition, progress=shown, elsewhere=elsewhere)

    def compact_manifests(self, *, dry_run: bool = False) -> ManifestCompaction:
        """Merges the small manifests of the table, and those with deletes, in a COMPACT snapshot without a change; none
        where that would change nothing. Readers then plan with fewer requests. Commits do it as they go, once
        `manifest.full-compaction-threshold-size` or `manifest.merge-min-count` is reached.

        A dry run says what there is. Raises `RetryableError` where others commit faster all the time.
        """
        store = self.store.at_latest_schema()
        if not dry_run:
            store.check_writable()
        with store.naming_dropped_table(), at_work(f"merging manifests of {self.name}"):
            from freshet.storage.maintenance.manifest_compaction import compact_manifests

            result = compact_manifests(store, dry_run=dry_run)
        store.env.finish_later()
        return result

    def sort_compact(
        self,
        order_by: Sequence[str],
        strategy: str = "order",
        *,
        partition: PartitionChoice | None = None,
        progress: ProgressCallback | None = None,
    ) -> CompactionResult:
        """Sorts the rows of an append table without buckets, partition by partition, so that filters read few files.

        `strategy` is `order` (by the columns, one after the other), `zorder` or `hilbert` (by all of them alike);
        `partition` and the rest are as in `compact`. A partition of which another job has rewritten a file meanwhile
        is left as it is. Raises `InvalidRequestError` for other tables, and columns without an order.
        """
        with self.store.naming_dropped_table(), at_work(f"sorting {self.name}") as advance:
            from freshet.storage.maintenance.sort_compaction import sort_compact

            shown = progress or partial(_advance_bytes, advance)
            return sort_compact(self.store, order_by, strategy, partition=partition, progress=shown)

    def repair(
        self, *, partition: PartitionChoice | None = None, progress: ProgressCallback | None = None
    ) -> CompactionResult:
        """Merges levels whose files overlap, which commits and compactions refuse to touch, with each file as a sorted
        run of its own; `partition` is as in `compact`. No changes are emitted.

        Of two rows of a key the merge engine makes one, in the order of their numbers. Where both were whole rows
        already (tables that look keys up), sums may have counted twice: compare those with their source.
        """
        store = self.store.at_latest_schema()
        store.check_writable()
        with store.naming_dropped_table(), at_work(f"repairing {self.name}") as advance:
            from freshet.storage.maintenance.table_compaction import repair_levels

            shown = progress or partial(_advance_bytes, advance)
            result = repair_levels(store, partition=partition, progress=shown)
        store.env.finish_later()
        return result

    def repair_lost_commit(self, manifest_list: str | None = None) -> CommitResult:
        """Commits a lost commit again, under its user and number, so that it is in the table once however often this is
        called. `manifest_list` is what the `LostCommitError` names; without it there must be one lost commit.

        Stop its writer before. Raises `NotFoundError` where there is no such commit, `MissingFileError` where files of
        it were removed, `ConflictError` where it does not fit on what others have committed since.
        """
        from freshet.storage.maintenance.repairs import repair_lost_commit

        store = self.store.at_latest_schema()
        store.check_writable()
        if manifest_list is not None:
            return repair_lost_commit(lost_commit_named(store, manifest_list))
        return repair_lost_commit(the_lost_commit(store))

    def repair_hash_indexes(self, *, progress: Callable[[int, int], None] | None = None) -> HashIndexRepair:
        """Builds the hash indexes of dynamic buckets again that are missing, damaged, or lack keys of their bucket;
        reads the keys of all data files. `progress` is called with how many buckets are looked at, and of how many.

        Raises `ConflictError` where another writer changes one of them meanwhile: nothing was committed then.
        """
        store = self.store.at_latest_schema()
        with store.naming_dropped_table(), at_work(f"looking at the hash indexes of {self.name}") as advance:
            from freshet.storage.maintenance.repairs import repair_hash_indexes

            repair = repair_hash_indexes(store, progress or advance)
        store.env.finish_later()
        return repair

    def expire_snapshots(
        self,
        *,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than_ms: int | None = None,
        dry_run: bool = False,
    ) -> ExpireResult:
        """Removes old snapshots and the files only they name; what is not given comes from the table's options.

        `older_than_ms` is an age: snapshots replaced within that time stay. `dry_run` only says what would go.
        """
        with at_work(f"expiring snapshots of {self.name}"):
            from freshet.storage.cleaning.expire import expire_snapshots

            return expire_snapshots(
                self.store,
                retain_max=retain_max,
                retain_min=retain_min,
                time_retained_ms=older_than_ms,
                is_dry_run=dry_run,
            )

    def expire_partitions(
        self,
        *,
        older_than: timedelta | None = None,
        max_num: int | None = None,
        dry_run: bool = False,
    ) -> PartitionExpiry:
        """Deletes all rows of partitions that are older than an age, as overwrites; what is not given comes from the
        table's options (`partition.expiration-time`, `partition.expiration-max-num`).

        How old a partition is, the options say too: `partition.expiration-strategy`, `partition.timestamp-pattern` and
        `partition.timestamp-formatter`, which `with_options` gives for one call. Rows that others commit to such a
        partition meanwhile go as well, but for `update-time`, by which it is not old then. `dry_run` only says which
        partitions would go. Raises `InvalidRequestError` for a table without partitions, and without an age.
        """
        age_ms = None if older_than is None else older_than // timedelta(milliseconds=1)
        store = self.store.at_latest_schema()
        with store.naming_dropped_table():
            from freshet.storage.cleaning.partition_expiry import expire_partitions

            expiry = expire_partitions(store, older_than_ms=age_ms, max_num=max_num, dry_run=dry_run)
        store.env.finish_later()
        return expiry

    def mark_partition_done(self, *partitions: Mapping[str, PartitionValue]) -> tuple[str, ...]:
        """Marks partitions as done for programs that wait for that: `partition.mark-done-action=success-file`, the
        default, writes a file `_SUCCESS` into the folder of each. Returns the paths.

            table.mark_partition_done({"dt": "2026-11-22"})

        Rows may come all the same, and a partition without rows can be done. Raises `UnsupportedFeatureError` for other
        actions, `InvalidRequestError` for what is no partition of this table; nothing is marked then.
        """
        from freshet.storage.maintenance.done_partitions import mark_partitions_done

        return mark_partitions_done(self.store.at_latest_schema(), partitions)

    def remove_orphan_files(self, *, older_than_ms: int = DEFAULT_AGE_MS, dry_run: bool = False) -> OrphanResult:
        """Removes files that nothing names and that are older than the age given (a crash leaves such files).

        The files of a commit under way are named by nothing yet: with an age that is shorter than such a commit takes,
        they are removed, and the table is damaged.
        Spill folders that dead processes have left on this machine go as well.
        """
        if not dry_run:
            self.store.claims.check_writable()
            self.store.env.sweep_scratch()
        with at_work(f"looking for orphan files of {self.name}"):
            return remove_orphan_files(self.store, older_than_ms=older_than_ms, dry_run=dry_run)

    def alter(self, *changes: SchemaChange, allow_lossy: bool = False) -> Table:
        """Changes the schema, all changes or none, and returns the table opened with the new one.

            table.alter(AddColumn("note", "STRING", after="id"), SetDefault("note", "-"), DropColumn("old"))
            table.alter(AddColumn("zip", "STRING", within="address"))  # a field of a ROW

        A change of type that could lose or break stored values is refused, naming what could happen, unless
        `allow_lossy` says that it may. So is an option that would make other rows of those that are there, such as
        `sequence.field`, before the table is compacted in full. `deletion-vectors.enabled` changes with
        `deletion-vectors.modifiable`, and compacts it.

        Raises `InvalidRequestError` naming the change that is refused, `ConflictError` when others change the schema
        all the time.
        """
        from freshet.storage.maintenance.vector_switch import altered

        return Table(altered(self.store, changes, allow_lossy=allow_lossy))

    def with_options(self, options: Mapping[str, object]) -> Table:
        """The same table with options overridden for the new object only, on top of those that this one was given."""
        return Table(self.store.with_options(option_texts(options), at_latest=True))


def _advance_bytes(advance: Advance, done: CompactionProgress | RescaleProgress) -> None:
    advance(done.bytes_done, done.bytes_planned)
