"""Tables made by hand, for tests of commits: real metadata files, data files of a few bytes that are never decoded.

Keys are one BIGINT; a file is written as `new_file(store, "a", rows=3, keys=(1, 9), level=0)` and lies in its bucket
folder under the name given plus `.parquet`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from freshet.storage.catalogs.claims import WON, FileClaims
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.io.env import Env
from freshet.storage.metadata.live_files import data_manifests, live_entries
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource, SimpleStats
from freshet.storage.model.data_type import DataField, ScalarType, TypeRoot
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.paths import TablePaths

KEY = DataField(0, "id", ScalarType(TypeRoot.BIGINT, nullable=False))
VALUE = DataField(1, "v", ScalarType(TypeRoot.VARCHAR, length=2147483647))
PARTITION = DataField(2, "p", ScalarType(TypeRoot.INT, nullable=False))


def make_table(
    env: Env,
    location: str = "/warehouse/db.db/t",
    *,
    keyed: bool = True,
    partitioned: bool = False,
    options: Mapping[str, str] | None = None,
) -> TableStore:
    """Creates a table and opens it; expiry keeps nothing but the last snapshot unless the options say otherwise."""
    buckets = {"bucket": "2"} if keyed else {"bucket": "-1"}
    schema = TableSchema(
        id=0,
        fields=(KEY, VALUE, PARTITION) if partitioned else (KEY, VALUE),
        highest_field_id=2 if partitioned else 1,
        partition_keys=("p",) if partitioned else (),
        primary_keys=(("p", "id") if partitioned else ("id",)) if keyed else (),
        options={**buckets, **(options or {})},
    )
    assert FileClaims(env.file_io, TablePaths(location)).claim_schema(schema)
    return open_table_store(env, location)


def partition(value: int) -> bytes:
    """The partition row of a partitioned table."""
    return encode_row([value], [PARTITION.type])


def new_file(
    store: TableStore,
    name: str,
    *,
    rows: int = 1,
    keys: tuple[int, int] = (0, 9),
    level: int = 0,
    bucket: int = 0,
    partition: bytes = EMPTY_ROW,
    extra: Sequence[str] = (),
    sequence: int = 0,
) -> DataFileMeta:
    """Writes a data file (and its side-cars) and describes it; its rows have the numbers from `sequence` on."""
    file_name = f"{name}.parquet"
    content = name.encode()
    for path in (file_name, *extra):
        output = store.env.file_io.open_output(f"{store.bucket_folder(partition, bucket)}/{path}")
        output.write(content)
        output.close()
    low, high = (encode_row([key], [KEY.type]) for key in keys)
    is_keyed = store.schema.has_primary_key
    return DataFileMeta(
        file_name=file_name,
        file_size_bytes=len(content),
        row_count=rows,
        min_key=low if is_keyed else EMPTY_ROW,
        max_key=high if is_keyed else EMPTY_ROW,
        key_stats=SimpleStats(low, high, (0,)) if is_keyed else EMPTY_STATS,
        value_stats=EMPTY_STATS,
        value_stats_cols=(),
        min_sequence_number=sequence,
        max_sequence_number=sequence + rows,
        schema_id=0,
        level=level,
        extra_files=tuple(extra),
        creation_time_ms=store.env.creation_time_ms(),
        delete_row_count=0,
        file_source=FileSource.APPEND if level == 0 else FileSource.COMPACT,
    )


def message(
    store: TableStore,
    *,
    bucket: int = 0,
    partition: bytes = EMPTY_ROW,
    new: Sequence[DataFileMeta] = (),
    deleted: Sequence[DataFileMeta] = (),
    before: Sequence[DataFileMeta] = (),
    after: Sequence[DataFileMeta] = (),
    changelog: Sequence[DataFileMeta] = (),
) -> CommitMessage:
    """A commit message of one bucket."""
    return CommitMessage(
        partition=partition,
        bucket=bucket,
        total_buckets=store.options.bucket,
        new_files=tuple(new),
        deleted_files=tuple(deleted),
        changelog_files=tuple(changelog),
        compact_before=tuple(before),
        compact_after=tuple(after),
    )


def force(store: TableStore, entries: Sequence[ManifestEntry], **facts: Any) -> Snapshot:
    """Commits entries whatever they break, with these facts of the snapshot."""
    latest = store.snapshots.latest()
    assert latest is not None
    base, base_size = store.manifests.write_manifest_list(data_manifests(store.manifests, latest))
    delta, delta_size = store.manifests.write_manifest_list(store.manifests.write_manifests(entries))
    rows = sum(entry.file.row_count * (1 if entry.kind is EntryKind.ADD else -1) for entry in entries)
    snapshot = replace(
        latest,
        id=latest.id + 1,
        uuid=store.env.new_uuid(),
        base_manifest_list=base,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta,
        delta_manifest_list_size=delta_size,
        total_record_count=latest.total_record_count + rows,
        delta_record_count=rows,
        commit_kind=CommitKind.COMPACT,
    )
    assert store.claims.claim_snapshot(replace(snapshot, **facts)) == WON
    store.snapshots.write_latest_hint(snapshot.id)
    return replace(snapshot, **facts)


def bare_snapshot(snapshot_id: int, **facts: Any) -> Snapshot:
    """A snapshot whose lists are never read."""
    given = {
        "schema_id": 0,
        "base_manifest_list": "base",
        "delta_manifest_list": "delta",
        "commit_user": "u",
        "commit_identifier": 1,
        "commit_kind": CommitKind.APPEND,
        "time_ms": 0,
        "total_record_count": 0,
        "delta_record_count": 0,
    }
    return Snapshot(id=snapshot_id, **{**given, **facts})


def live_names(store: TableStore, snapshot: Snapshot | None = None) -> list[str]:
    """Names of live files as `a@0`, sorted; of the latest snapshot by default."""
    entries = live_entries(store.manifests, snapshot or store.snapshots.latest())
    return sorted(f"{entry.file.file_name.removesuffix('.parquet')}@{entry.file.level}" for entry in entries)


def data_files_on_disk(store: TableStore) -> list[str]:
    """Names of all files in bucket folders, sorted."""
    found: list[str] = []
    folders = [store.paths.data_root]
    while folders:
        for status in store.env.file_io.entries(folders.pop()):
            if status.is_folder and ("=" in status.name or status.name.startswith("bucket-")):
                folders.append(status.path)
            elif "/bucket-" in status.path and not status.is_folder:
                found.append(status.name.removesuffix(".parquet"))
    return sorted(found)


def assert_everything_named_is_there(store: TableStore) -> None:
    """Every snapshot and tag that can be seen can be read: lists, manifests, live data files."""
    seen = [store.snapshots.snapshot(snapshot_id) for snapshot_id in store.snapshots.list_ids()]
    for snapshot in [*seen, *store.snapshots.tags.all().values()]:
        for entry in live_entries(store.manifests, snapshot):
            path = store.data_file(entry.partition, entry.bucket, entry.file.file_name)
            assert store.env.file_io.exists(path), f"snapshot {snapshot.id} names {path}"


def assert_contiguous(store: TableStore) -> None:
    """Ids without a gap, and hints that do not run ahead."""
    ids = store.snapshots.list_ids()
    assert ids == list(range(ids[0], ids[-1] + 1)) if ids else True
    for hint in (store.paths.latest_hint, store.paths.earliest_hint):
        text = store.env.file_io.read_bytes(hint) if store.env.file_io.exists(hint) else b""
        assert not text or int(text) <= ids[-1], "a hint may be missing, empty or too low, never ahead"
