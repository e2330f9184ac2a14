"""`$files`: the live data files of a snapshot, by partition and bucket; `$partitions`, `$buckets`: their sums.

`$files`. Rows that wait in bucket -2 for their buckets are not among them: `$buckets` counts them, as -2.

100,000 files of five columns in 100 partitions take 1.4 s of processor time, 0.1 s without statistics and keys, and
2.9 s more where their manifests have to be read first.

What entries say of the values in files, in terms of the columns that the table has now, as texts.

    null_value_counts {id=0, name=2}    min_value_stats {id=1, name=null}    max_value_stats {id=9, name=null}

Columns are in the order of their names. Bounds go from the schema that a file was written with to the current one by
the casts that its rows go through; a column that the file does not have is NULL in all of its rows, one without
statistics, or with bounds that do not convert, is `null`. Files of one schema, with statistics of the same columns, are
taken together.

`$partitions` are by name; one row with an empty name without partition keys. What only a metastore knows of them (who
made them, whether they are done) is NULL, and `done` false. `deleted_record_count` are the rows that deletion vectors
mark.

Sums over the data files of partitions and buckets, from the entries of manifests as they are.

    rows, bytes, files   ADD entries minus DELETE entries; what has no file left is left out
    last_update_time     the newest file of any entry, also of one that was deleted since
    total_buckets        of the last entry that added a file

No entry has to be matched with another one, so nothing is kept of single files: 100,000 files in 10,000 partitions take
0.1 s of processor time, and 3 s more where their manifests have to be read first.

Source: MERGING.md §6.6; FORMAT.md §4.2, §6, §8, §10, §13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.casts.evolution import map_columns
from freshet.storage.codec.decoded_rows import arity_of, decode_rows
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError
from freshet.storage.metadata.live_files import data_manifests_at_once, entries_of, live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataField, DataType
from freshet.storage.model.manifest import DELETION_VECTORS_INDEX, EntryKind, ManifestEntry
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import POSTPONE_BUCKET, file_format_of
from freshet.storage.system_tables.definition import Values, each, metadata_table
from freshet.storage.system_tables.value_texts import PartitionTexts, java_texts, joined, key_texts

_SUMMED: Final = ("record_count", "file_size_in_bytes", "file_count")

_Key = tuple[int, tuple[str, ...] | None, tuple[str, ...] | None, int, int]
"""Schema id, columns with statistics, columns written, how many bounds there are, and how many counts."""


class FileStatistics(Frozen):
    """Statistics and keys of some files of a table."""

    store: TableStore
    files: Sequence[DataFileMeta]

    def null_counts(self) -> pa.Array[Any]:
        """How many values of each column are NULL."""
        return self._of_groups(self._null_counts)

    def min_values(self) -> pa.Array[Any]:
        """Lower bounds of the columns."""
        return self._of_groups(lambda files: self._bounds(files, [file.value_stats.min_values for file in files]))

    def max_values(self) -> pa.Array[Any]:
        """Upper bounds of the columns."""
        return self._of_groups(lambda files: self._bounds(files, [file.value_stats.max_values for file in files]))

    def min_keys(self) -> pa.Array[Any]:
        """The first key of each file; NULL in append tables."""
        return self._keys(attrgetter("min_key"))

    def max_keys(self) -> pa.Array[Any]:
        """The last key of each file."""
        return self._keys(attrgetter("max_key"))

    def _keys(self, key_of: Callable[[DataFileMeta], bytes]) -> pa.Array[Any]:
        def texts(files: Sequence[DataFileMeta]) -> pa.Array[Any]:
            rows = [key_of(file) for file in files]
            if arity_of(rows[0]) == 0:
                return pa.nulls(len(rows), pa.string())
            schema = self._schema(files[0].schema_id)
            return key_texts(rows, schema.types_of(schema.trimmed_primary_keys))

        return self._by_group(lambda file: (file.schema_id, arity_of(key_of(file))), texts)

    def _of_groups(self, texts: Callable[[Sequence[DataFileMeta]], pa.Array[Any]]) -> pa.Array[Any]:
        return self._by_group(_group, texts)

    def _null_counts(self, files: Sequence[DataFileMeta]) -> pa.Array[Any]:
        covered = self._covered(files[0])
        known = list(zip(*(file.value_stats.null_counts for file in files), strict=True))
        names = {name: index for index, (name, _) in enumerate(covered)}

        def text(wanted: DataField, source: DataField | None) -> pa.Array[Any]:
            if source is None:
                counts = pa.array([file.row_count for file in files], pa.int64())
            else:
                index = names.get(source.name, len(known))
                counts = pa.array(known[index], pa.int64()) if index < len(known) else pa.nulls(len(files), pa.int64())
            return counts.cast(pa.string()).fill_null("null")

        return self._by_column(files, text)

    def _bounds(self, files: Sequence[DataFileMeta], rows: Sequence[bytes]) -> pa.Array[Any]:
        covered = self._covered(files[0])
        values = decode_rows(rows, [kind for _, kind in covered])
        bounds = {name: bound for (name, _), bound in zip(covered, values, strict=True)}

        def text(wanted: DataField, source: DataField | None) -> pa.Array[Any]:
            bound = None if source is None else bounds.get(source.name)
            if source is None or bound is None:
                return java_texts(pa.nulls(len(files)), wanted.type)
            try:
                (column,) = map_columns([source], [wanted])
                return java_texts(column.convert(bound, len(files)), wanted.type)
            except InvalidRequestError:
                return java_texts(pa.nulls(len(files)), wanted.type)

        return self._by_column(files, text)

    def _by_column(
        self, files: Sequence[DataFileMeta], text: Callable[[DataField, DataField | None], pa.Array[Any]]
    ) -> pa.Array[Any]:
        written = {field.id: field for field in self._written(files[0])}
        is_evolved = files[0].schema_id != self.store.schema.id or files[0].write_cols is not None
        fields = self.store.schema.fields
        if not is_evolved and not self._covered(files[0]) and files[0].value_stats_cols is None:
            fields = ()  # old writers: no statistics, and no list of columns that says so
        parts: list[pa.Array[Any] | str] = ["{"]
        for index, field in enumerate(sorted(fields, key=lambda field: field.name.encode("utf-16-be"))):
            parts += [f"{', ' if index else ''}{field.name}=", text(field, written.get(field.id))]
        return joined([*parts, "}"], len(files))

    def _covered(self, file: DataFileMeta) -> list[tuple[str, DataType]]:
        """Name and type of each column of the statistics, in their order."""
        if arity_of(file.value_stats.min_values) == 0:
            return []
        written = self._written(file)
        if file.value_stats_cols is None:
            return [(field.name, field.type) for field in written]
        types = {field.name: field.type for field in written}
        if not types.keys() >= set(file.value_stats_cols):
            return []  # of columns that are not of the table, such as numbers of rows
        return [(name, types[name]) for name in file.value_stats_cols]

    def _written(self, file: DataFileMeta) -> tuple[DataField, ...]:
        """Columns that the file was written with."""
        fields = self._schema(file.schema_id).fields
        written = file.write_cols
        return fields if written is None else tuple(field for field in fields if field.name in written)

    def _schema(self, schema_id: int) -> TableSchema:
        return self.store.schema if schema_id == self.store.schema.id else self.store.schemas.schema(schema_id)

    def _by_group(
        self, key_of: Callable[[DataFileMeta], Any], texts: Callable[[Sequence[DataFileMeta]], pa.Array[Any]]
    ) -> pa.Array[Any]:
        """A text for each file, in their order; those that belong together are given at once."""
        groups: dict[Any, list[int]] = {}
        for index, file in enumerate(self.files):
            groups.setdefault(key_of(file), []).append(index)
        if not groups:
            return pa.array([], pa.string())
        try:
            made = [texts([self.files[index] for index in indices]) for indices in groups.values()]
        except InvalidRequestError as error:
            raise CorruptDataError(
                f"manifests of {self.store.name} hold keys or statistics of data files that cannot be read ({error}); "
                "read the table without min_key, max_key and the columns of statistics, and compact the table, which "
                "writes them anew",
                path=self.store.paths.manifest_folder,
            ) from error
        places = np.argsort(np.concatenate([np.asarray(indices) for indices in groups.values()]))
        return pa.concat_arrays(made).take(pa.array(places))


def _group(file: DataFileMeta) -> _Key:
    stats = file.value_stats
    return file.schema_id, file.value_stats_cols, file.write_cols, arity_of(stats.min_values), len(stats.null_counts)


def _entries(store: TableStore, snapshot: Snapshot | None) -> list[ManifestEntry]:
    entries = live_entries(store.manifests, snapshot)
    if store.options.bucket == POSTPONE_BUCKET:
        entries = [entry for entry in entries if entry.bucket >= 0]
    return sorted(entries, key=lambda entry: entry.bucket_id)


def _statistic(value: Callable[[FileStatistics], pa.Array[Any]]) -> Values:
    return lambda store, found: value(FileStatistics(store, [entry.file for entry in found]))


def _partitions(store: TableStore, found: Sequence[ManifestEntry]) -> pa.Array[Any]:
    return PartitionTexts(store).in_braces([entry.partition for entry in found])


def _paths(store: TableStore, found: Sequence[ManifestEntry]) -> list[str]:
    return [
        entry.file.external_path or f"{store.bucket_folder(*entry.bucket_id)}/{entry.file.file_name}" for entry in found
    ]


def _written_by(entry: ManifestEntry) -> str | None:
    source = entry.file.file_source
    return None if source is None else source.name


FILES: Final = metadata_table(
    "files",
    "its data files, with keys and statistics",
    _entries,
    (
        ("partition", "STRING", _partitions),
        ("bucket", "INT NOT NULL", each(lambda entry: entry.bucket)),
        ("file_path", "STRING NOT NULL", _paths),
        ("file_format", "STRING NOT NULL", each(lambda entry: file_format_of(entry.file.file_name))),
        ("schema_id", "BIGINT NOT NULL", each(lambda entry: entry.file.schema_id)),
        ("level", "INT NOT NULL", each(lambda entry: entry.file.level)),
        ("record_count", "BIGINT NOT NULL", each(lambda entry: entry.file.row_count)),
        ("file_size_in_bytes", "BIGINT NOT NULL", each(lambda entry: entry.file.file_size_bytes)),
        ("min_key", "STRING", _statistic(FileStatistics.min_keys)),
        ("max_key", "STRING", _statistic(FileStatistics.max_keys)),
        ("null_value_counts", "STRING NOT NULL", _statistic(FileStatistics.null_counts)),
        ("min_value_stats", "STRING NOT NULL", _statistic(FileStatistics.min_values)),
        ("max_value_stats", "STRING NOT NULL", _statistic(FileStatistics.max_values)),
        ("min_sequence_number", "BIGINT", each(lambda entry: entry.file.min_sequence_number)),
        ("max_sequence_number", "BIGINT", each(lambda entry: entry.file.max_sequence_number)),
        ("creation_time", "TIMESTAMP(3)", each(lambda entry: entry.file.creation_time_ms)),
        ("deleteRowCount", "BIGINT", each(lambda entry: entry.file.delete_row_count)),
        ("file_source", "STRING", each(_written_by)),
        ("first_row_id", "BIGINT", each(lambda entry: entry.file.first_row_id)),
        ("write_cols", "ARRAY<STRING>", each(lambda entry: entry.file.write_cols)),
    ),
    travels=True,
)


def file_sums(
    store: TableStore, snapshot: Snapshot | None, keys: Sequence[str], *, only_real_buckets: bool
) -> pa.Table:
    """One row for each `partition` (its serialized row), or `partition` and `bucket`, with the sums named above."""
    entries = []
    if snapshot is not None:
        manifests = data_manifests_at_once(store.manifests, snapshot)
        with store.manifests.ahead(manifests):
            entries = entries_of(store.manifests, manifests)
    if only_real_buckets:
        entries = [entry for entry in entries if entry.bucket >= 0]
    is_added = np.fromiter((entry.kind is EntryKind.ADD for entry in entries), np.bool_, len(entries))
    sign = np.where(is_added, 1, -1)
    rows = np.fromiter((entry.file.row_count for entry in entries), np.int64, len(entries))
    sizes = np.fromiter((entry.file.file_size_bytes for entry in entries), np.int64, len(entries))
    buckets = pa.array([entry.total_buckets for entry in entries], pa.int32())
    table = pa.table(
        {
            "partition": pa.array([entry.partition for entry in entries], pa.binary()),
            "bucket": pa.array([entry.bucket for entry in entries], pa.int32()),
            "record_count": rows * sign,
            "file_size_in_bytes": sizes * sign,
            "file_count": sign.astype(np.int64),
            "last_update_time": pa.array([entry.file.creation_time_ms for entry in entries], pa.int64()),
            "total_buckets": pc.if_else(pa.array(is_added), buckets, pa.scalar(None, pa.int32())),
        }
    )
    sums = table.group_by(list(keys), use_threads=False).aggregate(
        [*((name, "sum") for name in _SUMMED), ("last_update_time", "max"), ("total_buckets", "last")]
    )
    named = {f"{name}_sum": name for name in _SUMMED} | {
        "last_update_time_max": "last_update_time",
        "total_buckets_last": "total_buckets",
    }
    sums = sums.rename_columns([named.get(name, name) for name in sums.column_names])
    return sums.filter(pc.field("file_count") > 0).combine_chunks()


class _Sums(Frozen):
    """The partitions of a snapshot with their sums, by name."""

    snapshot: Snapshot | None
    names: pa.Array[Any]
    sums: pa.Table


def _with_sums(store: TableStore, snapshot: Snapshot | None) -> _Sums:
    only_real = store.options.bucket == POSTPONE_BUCKET
    sums = file_sums(store, snapshot, ["partition"], only_real_buckets=only_real)
    names = PartitionTexts(store).as_folders(sums["partition"].to_pylist())
    order = pc.array_sort_indices(names)
    return _Sums(snapshot, names.take(order), sums.take(order))


def _sum(name: str) -> Values:
    return lambda store, found: found.sums[name]


def _always(value: object) -> Values:
    return lambda store, found: [value] * len(found.names)


def _deleted(store: TableStore, found: _Sums) -> list[int | None]:
    marked = _marked_rows(store, found.snapshot)
    return [marked.get(partition, 0) for partition in found.sums["partition"].to_pylist()]


def _marked_rows(store: TableStore, snapshot: Snapshot | None) -> Mapping[bytes, int | None]:
    """Rows that deletion vectors mark, by partition; None where an index file does not say how many."""
    if snapshot is None or snapshot.index_manifest is None or not store.options.deletion_vectors_enabled:
        return {}
    counts: dict[bytes, int | None] = {}
    for entry in store.manifests.read_index_manifest(snapshot.index_manifest):
        if entry.file.index_type != DELETION_VECTORS_INDEX:
            continue
        for vector in entry.file.deletion_vectors or ():
            known = counts.get(entry.partition, 0)
            counts[entry.partition] = (
                None if known is None or vector.cardinality is None else known + vector.cardinality
            )
    return counts


PARTITIONS: Final = metadata_table(
    "partitions",
    "its partitions, with rows and bytes",
    _with_sums,
    (
        ("partition", "STRING", lambda store, found: found.names),
        ("record_count", "BIGINT NOT NULL", _sum("record_count")),
        ("file_size_in_bytes", "BIGINT NOT NULL", _sum("file_size_in_bytes")),
        ("file_count", "BIGINT NOT NULL", _sum("file_count")),
        ("last_update_time", "TIMESTAMP(3)", _sum("last_update_time")),
        ("created_at", "TIMESTAMP(3)", _always(None)),
        ("created_by", "STRING", _always(None)),
        ("updated_by", "STRING", _always(None)),
        ("options", "STRING", _always(None)),
        ("total_buckets", "INT NOT NULL", _sum("total_buckets")),
        ("done", "BOOLEAN NOT NULL", _always(False)),
        ("deleted_record_count", "BIGINT", _deleted),
    ),
    travels=True,
)


def _buckets(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    sums = file_sums(store, snapshot, ["partition", "bucket"], only_real_buckets=False)
    texts = PartitionTexts(store).in_braces(sums["partition"].to_pylist())
    named = sums.set_column(sums.schema.get_field_index("partition"), "partition", texts)
    return named.sort_by([("partition", "ascending"), ("bucket", "ascending")])


def _named(name: str) -> Values:
    return lambda store, found: found[name]


BUCKETS: Final = metadata_table(
    "buckets",
    "its buckets, with rows and bytes",
    _buckets,
    (
        ("partition", "STRING", _named("partition")),
        ("bucket", "INT NOT NULL", _named("bucket")),
        ("record_count", "BIGINT NOT NULL", _named("record_count")),
        ("file_size_in_bytes", "BIGINT NOT NULL", _named("file_size_in_bytes")),
        ("file_count", "BIGINT NOT NULL", _named("file_count")),
        ("last_update_time", "TIMESTAMP(3)", _named("last_update_time")),
    ),
    travels=True,
)
