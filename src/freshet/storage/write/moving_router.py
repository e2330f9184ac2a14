"""The router of tables whose rows move between partitions: `bucket=-1`, a primary key without all partition columns.

    route            looks the places of keys up, in what this commit has placed and in the index (`place_index`), and
                     makes of the rows those that are to be written (`partition_moves`)
    prepare_commit   says which snapshot the index stood for (`assigned_upon`)
    rebase           goes on with the index of another snapshot

What was placed upon a snapshot holds only while no other commit adds or removes rows: a key that is new here may be
another writer's, in another partition. So the committer looks before each claim which commits came since
(`commit.change_fit`).

The index is opened when the first rows come, and closed with the writer.

A `KeyMover` places rows of a share of the keys for other tasks to write: a stage of an engine between two shuffles.

    mover.move(keys)     for the rows of the task in input order: which are to be written, where, and as what
    mover.finish()       what the committer checks, in a message

A share is one task's, by the hash of the full key, so that it meets all rows of its keys. What it gives follows from
the rows, their order and the snapshot: a task that is computed again gives the same.

Source: FORMAT.md §8; MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import (
    MissingFileError,
    NotFoundError,
    UnsupportedFeatureError,
)
from freshet.storage.merge.gather import take_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.commit_message import CommitMessage, PlacedUpon
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET, MergeEngine
from freshet.storage.place_index.index_database import ALL_KEYS, NOWHERE, KeyPlaces, KeyShare, keys_of
from freshet.storage.place_index.share_index import ShareIndex
from freshet.storage.write.bucketing import RoutedRows, partition_codes, routed_rows
from freshet.storage.write.dynamic_router import UnfixedRouter, base_of_batch, explained_expiry
from freshet.storage.write.partition_index import BUCKETS_MAX, AssignerShare, AssignmentRule, members_of
from freshet.storage.write.partition_moves import Moves, MovingRows, Numbers, PendingPlaces, moves
from freshet.storage.write.records import AcceptedRows, ignored_kinds, key_rules

_PLACES: Final = BUCKETS_MAX + 1
"""A place is one number: partition * _PLACES + bucket."""


class MovingRouter(UnfixedRouter):
    """The router of a table whose rows move, for all keys or a share of them. Used by one thread."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None, share: KeyShare = ALL_KEYS) -> None:
        super().__init__(store)
        self._snapshot = snapshot
        self._share = share
        self._rule = AssignmentRule(
            store.options.dynamic_bucket_target_row_num, None, AssignerShare(share.number, share.count)
        )
        self._index: ShareIndex | None = None
        self._scratch: list[str] = []
        self._pending = PendingPlaces(self._scratch_folder)
        self._partitions: dict[bytes, int] = {}
        self._counts: dict[int, dict[int, int]] = {}
        """Keys of each bucket, by partition, of the index and what was added since."""
        self._left: dict[tuple[bytes, int], int] = {}
        """Buckets that keys had in partitions which they have left in this commit."""
        self._touched: BucketId | None = None
        """A bucket that got rows since the last messages."""
        self._has_pending = False

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        if not accepted.rows.num_rows:
            return
        rows, made = self.moved(accepted, executor)
        if not rows.num_rows:
            return
        present, codes = np.unique(made.partitions, return_inverse=True)
        names = list(self._partitions)
        partitions = [names[number] for number in present.tolist()]
        written, totals = AcceptedRows(rows, made.kinds), [DYNAMIC_BUCKET] * len(partitions)
        yield from routed_rows(written, partitions, codes, made.buckets, totals, executor)

    def moved(self, accepted: AcceptedRows, executor: Executor | None = None) -> tuple[pa.Table, Moves]:
        """The rows to write, in order, and what they are made of. The key and the partition columns are enough."""
        rows = accepted.rows
        index = self._opened()
        found, codes = partition_codes(rows, self._store.schema)
        numbers = np.array([self._number(partition) for partition in found])
        partitions = np.full(rows.num_rows, numbers[0]) if codes is None else numbers[codes]
        encoded = keys_of(rows, self._store.schema).dictionary_encode()
        keys: list[bytes] = encoded.dictionary.to_numpy(zero_copy_only=False).tolist()
        placed_in, placed_at = self._places(index, keys)
        arrivals = MovingRows(
            encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
            partitions,
            accepted.kinds,
            placed_in,
            placed_at,
        )
        options = self._store.options
        made = moves(
            arrivals,
            options.merge_engine,
            lambda given_keys, given_in: self._given_buckets(keys, given_keys, given_in),
            lose_kind=options.cross_partition_upsert_lose_row_kind,
        )
        self._note_left(keys, arrivals, made)
        self._pending.put(keys, made.placed_in * _PLACES + made.placed_at)
        self._has_pending = True
        if len(made.rows):
            self._touched = self.partition(int(made.partitions[0])), int(made.buckets[0])
        return self._written(rows, partitions, made, executor), made

    def prepare_commit(self) -> Sequence[CommitMessage]:
        if self._touched is None:
            return ()
        assert self._index is not None, "rows were routed"
        touched, self._touched = self._touched, None
        upon = PlacedUpon(self._index.snapshot_id, self._index.snapshot_uuid)
        return [CommitMessage(*touched, DYNAMIC_BUCKET, assigned_upon=upon.text)]

    def rebase(self, snapshot: Snapshot | None) -> None:
        # With rows that no message knows of, the places stay those that they were given: if the index is outdated by
        # then, the commit is refused.
        if self._touched is None:
            self._snapshot = snapshot
            self._forget()

    def abort(self) -> None:
        self._forget()
        self._touched = None
        if self._index is not None:
            self._index.close()
            self._index = None
        for folder in self._scratch:
            self._store.env.release_scratch(folder)
        self._scratch.clear()

    def partition(self, number: int) -> bytes:
        """The partition that a number of `moved` means."""
        return list(self._partitions)[number]

    def _forget(self) -> None:
        self._pending.close()
        self._counts.clear()
        self._left.clear()
        self._partitions.clear()
        self._has_pending = False

    def _opened(self) -> ShareIndex:
        options = self._store.options
        if options.ignore_delete and options.merge_engine is MergeEngine.DEDUPLICATE:
            raise UnsupportedFeatureError(
                f"{self._store.location} has ignore-delete, which would pass over the deletes by which its rows leave "
                "their partitions: keys would be in two. Remove the option to write the table",
                option="ignore-delete",
            )
        if self._index is None:
            self._index = ShareIndex(self._store, self._snapshot, self._share)
        elif not self._has_pending:
            self._index.rebase(self._snapshot)
        return self._index

    def _number(self, partition: bytes) -> int:
        return self._partitions.setdefault(partition, len(self._partitions))

    def _places(self, index: ShareIndex, keys: list[bytes]) -> tuple[Numbers, Numbers]:
        """Partition and bucket of each key."""
        places = self._pending.find(keys)
        placed_in, placed_at = places // _PLACES, places % _PLACES
        placed_in[places == NOWHERE] = placed_at[places == NOWHERE] = NOWHERE
        missing = np.flatnonzero(places == NOWHERE)
        if len(missing):
            known: KeyPlaces = index.find([keys[each] for each in missing.tolist()])
            # The last one is that of `NOWHERE`.
            numbers = np.array([*map(self._number, known.partitions), NOWHERE])
            placed_in[missing] = numbers[known.in_partition]
            placed_at[missing] = known.at_bucket
        return placed_in, placed_at

    def _note_left(self, keys: list[bytes], arrivals: MovingRows, made: Moves) -> None:
        """Places that keys have left: a key that comes back within this commit gets the bucket that it had."""
        left = np.flatnonzero((arrivals.placed_in != NOWHERE) & (arrivals.placed_in != made.placed_in))
        places = zip(left.tolist(), arrivals.placed_in[left].tolist(), arrivals.placed_at[left].tolist(), strict=True)
        self._left.update(((keys[key], partition), bucket) for key, partition, bucket in places)
        stays = np.flatnonzero(made.partitions != made.placed_in[arrivals.keys[made.rows]])
        rows = zip(
            arrivals.keys[made.rows[stays]].tolist(),
            made.partitions[stays].tolist(),
            made.buckets[stays].tolist(),
            strict=True,
        )
        self._left.update(((keys[key], partition), bucket) for key, partition, bucket in rows)

    def _given_buckets(self, keys: list[bytes], given_keys: Numbers, partitions: Numbers) -> Numbers:
        buckets = np.full(len(partitions), NOWHERE, np.int64)
        if self._left:
            pairs = zip(given_keys.tolist(), partitions.tolist(), strict=True)
            buckets[:] = [self._left.get((keys[key], partition), NOWHERE) for key, partition in pairs]
        new = np.flatnonzero(buckets == NOWHERE)
        if len(new):
            buckets[new] = self._new_buckets(partitions[new])
        return buckets

    def _new_buckets(self, partitions: Numbers) -> Numbers:
        buckets = np.empty(len(partitions), np.int64)
        names = list(self._partitions)
        for partition, members in members_of(partitions):
            counts = self._counts.get(partition)
            if counts is None:
                counts = self._counts[partition] = self._index_counts(names[partition])
            given = self._rule.assign(members.astype(np.int32), counts)
            buckets[members] = given
            for bucket, count in zip(*np.unique(given, return_counts=True), strict=True):
                counts[int(bucket)] = counts.get(int(bucket), 0) + int(count)
        return buckets

    def _index_counts(self, partition: bytes) -> dict[int, int]:
        assert self._index is not None, "rows are routed"
        return {bucket: count for (of, bucket), count in self._index.counts.items() if of == partition}

    def _written(self, rows: pa.Table, partitions: Numbers, made: Moves, executor: Executor | None) -> pa.Table:
        is_same = len(made.rows) == rows.num_rows and bool((made.rows == np.arange(rows.num_rows)).all())
        taken = rows if is_same else take_rows(rows, made.rows, None, executor)
        if (made.partitions == partitions[made.rows]).all():
            return taken
        present, codes = np.unique(made.partitions, return_inverse=True)
        names = list(self._partitions)
        values = [self._store.partition_values(names[number]) for number in present.tolist()]
        indices = pa.array(codes)
        for position, name in enumerate(self._store.schema.partition_keys):
            kind = arrow_type(self._store.schema.by_name[name].type)
            column: Any = pa.array([each[position] for each in values], kind).take(indices)
            place = taken.schema.get_field_index(name)
            taken = taken.set_column(place, taken.schema.field(place), column)
        return taken

    def _scratch_folder(self) -> str:
        self._scratch.append(self._store.env.scratch_folder())
        return self._scratch[-1]


class MovedRows(Frozen):
    """Rows to write, in order."""

    rows: npt.NDArray[np.int64]
    """The rows given that they are made of."""
    partition_columns: pa.Table
    """Their partition columns, which may not be those of the rows given."""
    buckets: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int8]
    ignored_count: int
    """Rows given that the table ignores for their kind."""


class KeyMover:
    """One share of the keys, upon one snapshot; used by one thread. `close` it whatever happens."""

    def __init__(self, store: TableStore, base_snapshot_id: int | None, share: KeyShare) -> None:
        """Raises `RetryableError` where the snapshot has expired: tasks that are computed again must see the same."""
        check_moves_in_tasks(store)
        base = base_of_batch(store, base_snapshot_id)
        self._store = store
        self._base_id = base_snapshot_id
        needed = {*store.schema.primary_keys, *store.schema.partition_keys}
        self.columns = tuple(name for name in store.schema.column_names if name in needed)
        """What is needed of the rows, besides `_ROW_KIND` where they have one."""
        self._rules = key_rules(store, self.columns)
        options = store.options
        self._ignored = ignored_kinds(
            ignore_delete=options.ignore_delete, ignore_update_before=options.ignore_update_before
        )
        self._router = MovingRouter(store, base, share)

    def move(self, given: pa.Table) -> MovedRows:
        """What becomes of rows of the share, with these columns; raises as a writer does that is given them."""
        accepted = self._rules.accept(given)
        kinds = np.zeros(given.num_rows, np.int8) if accepted.kinds is None else accepted.kinds
        taken = np.flatnonzero(~np.isin(kinds, self._ignored))
        rows = accepted.rows if len(taken) == len(kinds) else accepted.rows.take(pa.array(taken))
        names = list(self._store.schema.partition_keys)
        ignored_count = given.num_rows - len(taken)
        if not len(taken):
            return MovedRows(taken, rows.select(names), np.zeros(0, np.int64), kinds[:0], ignored_count)
        with explained_expiry(self._store, self._base_id, NotFoundError, MissingFileError):
            written, made = self._router.moved(AcceptedRows(rows, kinds[taken] if kinds.any() else None))
        made_kinds = np.zeros(len(made.rows), np.int8) if made.kinds is None else made.kinds
        return MovedRows(taken[made.rows], written.select(names), made.buckets, made_kinds, ignored_count)

    def finish(self) -> Sequence[CommitMessage]:
        """What the places were looked up at."""
        return self._router.prepare_commit()

    def close(self) -> None:
        """Leaves the index to the next batch."""
        self._router.abort()


def check_moves_in_tasks(store: TableStore) -> None:
    """Raises `UnsupportedFeatureError` where tasks of an engine could not write rows that move: their kinds come from a
    column, which the row that deletes in the old partition has too."""
    if store.options.rowkind_field is not None:
        raise UnsupportedFeatureError(
            f"table {store.location} has rowkind.field={store.options.rowkind_field}, and its rows move between "
            "partitions: Spark does not write it. Drop the option and name the column _ROW_KIND in the query, or write "
            "it with Table.writer",
            option="rowkind.field",
        )
