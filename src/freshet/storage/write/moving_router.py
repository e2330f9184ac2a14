"""The router of tables whose rows move between partitions: `bucket=-1`, a primary key without all partition columns.

    route            looks the places of keys up, in what this commit has placed and in the index (`place_index`), and
                     makes of the rows those that are to be written (`partition_moves`)
    prepare_commit   says which snapshot the index stood for (`assigned_upon`)
    rebase           goes on with the index of another snapshot

What was placed upon a snapshot holds only while no other commit adds or removes rows: a key that is new here may be
another writer's, in another partition. So the committer looks before each claim which commits came since
(`commit.assignment`).

The index is opened when the first rows come, and closed with the writer.

Source: FORMAT.md §8; MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.merge.gather import take_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.commit_message import CommitMessage, PlacedUpon
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET, MergeEngine
from freshet.storage.place_index.key_places import NOWHERE, KeyPlaces
from freshet.storage.place_index.key_rows import ALL_KEYS, KeyShare, keys_of
from freshet.storage.place_index.share_index import ShareIndex
from freshet.storage.write.bucket_assignment import BUCKETS_MAX, AssignerShare, AssignmentRule
from freshet.storage.write.bucketing import RoutedRows, group_numbers, partition_codes, split_rows
from freshet.storage.write.partition_moves import Arrivals, Moves, moves
from freshet.storage.write.pending_places import UNKNOWN, PendingPlaces
from freshet.storage.write.records import AcceptedRows

Numbers = npt.NDArray[np.int64]

_PLACES: Final = BUCKETS_MAX + 1
"""A place is one number: partition * _PLACES + bucket."""


class MovingRouter:
    """The `RowRouter` of such a table, for all keys or a share of them. Used by one thread."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None, share: KeyShare = ALL_KEYS) -> None:
        options = store.options
        self._store = store
        self._snapshot = snapshot
        self._share = share
        self._rule = AssignmentRule(
            options.dynamic_bucket_target_row_num, None, AssignerShare(share.number, share.count)
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

    def kept_rows(self) -> Iterator[AcceptedRows]:
        return iter(())

    def total_buckets(self, partition: bytes) -> int:
        return DYNAMIC_BUCKET

    def note(self, partition: bytes, total_buckets: int) -> None:
        path = self._store.partition_path(partition) or "the table"
        raise InvalidRequestError(
            f"{path} of {self._store.location} has files of {total_buckets} fixed buckets, and the option bucket is "
            f"{DYNAMIC_BUCKET}: keys of them would come into a second bucket; overwrite it with its own rows by Apache "
            "Paimon",
            path=self._store.location,
        )

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        if not accepted.rows.num_rows:
            return
        rows, made = self.moved(accepted, executor)
        if not rows.num_rows:
            return
        present, codes = np.unique(made.partitions, return_inverse=True)
        bucket_count = int(made.buckets.max()) + 1
        groups = group_numbers(codes, made.buckets, bucket_count, len(present) * bucket_count)
        names = list(self._partitions)
        for group, positions, part in split_rows(rows, groups, executor):
            code, bucket = divmod(group, bucket_count)
            kinds = made.kinds if made.kinds is None or positions is None else made.kinds[positions]
            yield RoutedRows(names[present[code]], bucket, DYNAMIC_BUCKET, part, kinds)

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
        arrivals = Arrivals(
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
        placed_in[places == UNKNOWN] = placed_at[places == UNKNOWN] = NOWHERE
        missing = np.flatnonzero(places == UNKNOWN)
        if len(missing):
            known: KeyPlaces = index.find([keys[each] for each in missing.tolist()])
            # The last one is that of `NOWHERE`.
            numbers = np.array([*map(self._number, known.partitions), NOWHERE])
            placed_in[missing] = numbers[known.in_partition]
            placed_at[missing] = known.at_bucket
        return placed_in, placed_at

    def _note_left(self, keys: list[bytes], arrivals: Arrivals, made: Moves) -> None:
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
        order = np.argsort(partitions, kind="stable")
        found, starts = np.unique(partitions[order], return_index=True)
        names = list(self._partitions)
        for partition, members in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
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
