"""System tables of what the metadata of a table say.

`$snapshots`: the snapshots that are still there, oldest first.

`commit_time` is on the wall clock of the process that asks, as in the other tables here.

`$schemas`: every schema that the table has had, oldest first; columns, keys and options as JSON.

Secrets among the options are hidden, as everywhere.

`$options`: the options that the newest schema of the table has, by key; secrets are hidden.

Defaults are not among them, nor what was given when the table was opened.

`$tags`: names of snapshots, by name, with what their files say beyond the snapshot: since when, and for how long.

| key of the file | column |
|---|---|
| tagCreateTime: `[year, month, day, hour, minute, second, nanos]`, zeros at the end left out; ISO text | create_time |
| tagTimeRetained: seconds, or ISO text | time_retained, as `PT24H` |

`$branches`: branches of the table, by name, and when the folder of each was last changed, on the wall clock here.

In an object store a folder has no time; there it is that of the newest file of the branch's schemas.

`$consumers`: streaming readers that have a name, and the snapshot each wants next.

`$manifests`: the manifests of a snapshot, of its base, its delta and its changelog, in this order.

Source: MERGING.md §6.6; FORMAT.md §2, §3.1, §4.1, §12.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from freshet.storage.io.file_io import FileStatus
from freshet.storage.metadata.live_files import changelog_manifests, data_manifests_at_once
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import SimpleStats
from freshet.storage.model.data_type import field_to_json
from freshet.storage.model.manifest import ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.secrets import shown_options
from freshet.storage.paths import BRANCH_PREFIX
from freshet.storage.system_tables.definition import Values, each, metadata_table, parts
from freshet.storage.system_tables.value_texts import PartitionTexts


def _wall_clock(store: TableStore, found: Sequence[Any]) -> list[int]:
    """When each was made, on the wall clock of this process."""
    return [store.env.wall_clock_ms(one.time_ms) for one in found]


SNAPSHOTS: Final = metadata_table(
    "snapshots",
    "the snapshots that are still there",
    lambda store, _: store.snapshots.all(),
    (
        ("snapshot_id", "BIGINT NOT NULL", each(lambda one: one.id)),
        ("schema_id", "BIGINT NOT NULL", each(lambda one: one.schema_id)),
        ("commit_user", "STRING NOT NULL", each(lambda one: one.commit_user)),
        ("commit_identifier", "BIGINT NOT NULL", each(lambda one: one.commit_identifier)),
        ("commit_kind", "STRING NOT NULL", each(lambda one: str(one.commit_kind))),
        ("commit_time", "TIMESTAMP(3) NOT NULL", _wall_clock),
        ("base_manifest_list", "STRING NOT NULL", each(lambda one: one.base_manifest_list)),
        ("delta_manifest_list", "STRING NOT NULL", each(lambda one: one.delta_manifest_list)),
        ("changelog_manifest_list", "STRING", each(lambda one: one.changelog_manifest_list)),
        ("total_record_count", "BIGINT", each(lambda one: one.total_record_count)),
        ("delta_record_count", "BIGINT", each(lambda one: one.delta_record_count)),
        ("changelog_record_count", "BIGINT", each(lambda one: one.changelog_record_count)),
        ("watermark", "BIGINT", each(lambda one: one.watermark)),
        ("next_row_id", "BIGINT", each(lambda one: one.next_row_id)),
        ("operation", "STRING", each(lambda one: one.operation)),
    ),
)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


SCHEMAS: Final = metadata_table(
    "schemas",
    "its schemas, with their options, since it was created",
    lambda store, _: [store.schemas.schema(schema_id) for schema_id in store.schemas.list_ids()],
    (
        ("schema_id", "BIGINT NOT NULL", each(lambda one: one.id)),
        ("fields", "STRING NOT NULL", each(lambda one: _json([field_to_json(field) for field in one.fields]))),
        ("partition_keys", "STRING NOT NULL", each(lambda one: _json(one.partition_keys))),
        ("primary_keys", "STRING NOT NULL", each(lambda one: _json(one.primary_keys))),
        ("options", "STRING NOT NULL", each(lambda one: _json(shown_options(one.options)))),
        ("comment", "STRING", each(lambda one: one.comment)),
        ("update_time", "TIMESTAMP(3) NOT NULL", _wall_clock),
    ),
)


def _options(store: TableStore, _: Snapshot | None) -> list[tuple[str, str]]:
    newest = store.schemas.schema(store.schemas.check_current(store.schema))
    return sorted(shown_options(newest.options).items())


OPTIONS: Final = metadata_table(
    "options", "the options it has now", _options, parts(key="STRING NOT NULL", value="STRING NOT NULL")
)


_EPOCH: Final = datetime.datetime(1970, 1, 1)  # a wall clock has no zone


def _tags(store: TableStore, _: Snapshot | None) -> list[tuple[Any, ...]]:
    rows = []
    for name, tag in store.snapshots.tags.tags().items():
        snapshot = tag.snapshot
        created_ms = None if tag.created is None else (tag.created - _EPOCH) // datetime.timedelta(milliseconds=1)
        retained = None if tag.retained is None else duration_text(tag.retained)
        time_ms = store.env.wall_clock_ms(snapshot.time_ms)
        rows.append((name, snapshot.id, snapshot.schema_id, time_ms, snapshot.total_record_count, created_ms, retained))
    return rows


def duration_text(duration: datetime.timedelta) -> str:
    """A duration as ISO 8601 has it, in hours, minutes and seconds: `PT36H30M`, `PT0.5S`, `PT0S`."""
    hours, rest = divmod(duration, datetime.timedelta(hours=1))
    minutes, rest = divmod(rest, datetime.timedelta(minutes=1))
    seconds = f"{rest.total_seconds():.6f}".rstrip("0").rstrip(".")
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else ""]
    if rest or not any(parts):
        parts.append(f"{seconds}S")
    return "PT" + "".join(parts)


TAGS: Final = metadata_table(
    "tags",
    "its tags",
    _tags,
    parts(
        tag_name="STRING NOT NULL",
        snapshot_id="BIGINT NOT NULL",
        schema_id="BIGINT NOT NULL",
        commit_time="TIMESTAMP(3) NOT NULL",
        record_count="BIGINT",
        create_time="TIMESTAMP(3)",
        time_retained="STRING",
    ),
)


def _branches(store: TableStore, _: Snapshot | None) -> list[tuple[str, int]]:
    return [
        (folder.name.removeprefix(BRANCH_PREFIX), store.env.wall_clock_ms(_changed_ms(store, folder)))
        for folder in store.env.file_io.entries(store.paths.branch_folder)
        if folder.is_folder and folder.name.startswith(BRANCH_PREFIX)
    ]


def _changed_ms(store: TableStore, folder: FileStatus) -> int:
    if folder.modified_ms:
        return folder.modified_ms
    name = folder.name.removeprefix(BRANCH_PREFIX)
    files = store.env.file_io.entries(store.paths.branch(name).schema_folder)
    return max((status.modified_ms for status in files), default=0)


BRANCHES: Final = metadata_table(
    "branches",
    "its branches",
    _branches,
    parts(branch_name="STRING NOT NULL", create_time="TIMESTAMP(3) NOT NULL"),
)


CONSUMERS: Final = metadata_table(
    "consumers",
    "streaming readers that have a name",
    lambda store, _: sorted(store.consumers.positions().items()),
    parts(consumer_id="STRING NOT NULL", next_snapshot_id="BIGINT NOT NULL"),
)


def _manifests(store: TableStore, snapshot: Snapshot | None) -> list[ManifestFileMeta]:
    if snapshot is None:
        return []
    return [*data_manifests_at_once(store.manifests, snapshot), *changelog_manifests(store.manifests, snapshot)]


def _bounds(value: Callable[[SimpleStats], bytes]) -> Values:
    return lambda store, found: PartitionTexts(store).in_braces([value(one.partition_stats) for one in found])


MANIFESTS: Final = metadata_table(
    "manifests",
    "the manifests of its snapshot",
    _manifests,
    (
        ("file_name", "STRING NOT NULL", each(lambda one: one.file_name)),
        ("file_size", "BIGINT NOT NULL", each(lambda one: one.file_size_bytes)),
        ("num_added_files", "BIGINT NOT NULL", each(lambda one: one.num_added_files)),
        ("num_deleted_files", "BIGINT NOT NULL", each(lambda one: one.num_deleted_files)),
        ("schema_id", "BIGINT NOT NULL", each(lambda one: one.schema_id)),
        ("min_partition_stats", "STRING", _bounds(lambda stats: stats.min_values)),
        ("max_partition_stats", "STRING", _bounds(lambda stats: stats.max_values)),
        ("min_row_id", "BIGINT", each(lambda one: one.min_row_id)),
        ("max_row_id", "BIGINT", each(lambda one: one.max_row_id)),
    ),
    travels=True,
)
