"""A table as text: its columns, its latest snapshot, and the levels of each bucket as a drawing.

    dt=19675/bucket-0    3 runs, 1,203 rows, 4.2 MB
      L0  ▏                          120 rows    12.0 KB  seq 1083..1202  keys 4 .. 977    data-….parquet
      L0  ▏                           83 rows     9.1 KB  seq 1000..1082  keys 12 .. 480   data-….parquet
      L5  ████████████████████████  1,000 rows   4.2 MB   2 files         keys 1 .. 999

The newest run is on top; the bar is the share of the bucket's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from freshet.storage.codec.binary_row import decode_row
from freshet.storage.compact.levels import build_levels
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.sorted_run import LevelRun

BAR_WIDTH: Final = 24
KEY_TEXT_MAX: Final = 24
BUCKETS_SHOWN: Final = 64


def describe_table(store: TableStore, name: str) -> str:
    """The whole description, lines joined by newlines."""
    snapshot = store.snapshots.latest()
    lines = [*_header(store, name), *_snapshot_lines(snapshot)]
    if snapshot is not None:
        entries = list(store.live.at(snapshot).entries())
        lines.append(f"{_count(len(entries), 'file')}, {size_text(sum(e.file.file_size_bytes for e in entries))}")
        lines += ["", *_bucket_lines(store, entries)]
    return "\n".join(lines)


def size_text(size_bytes: int) -> str:
    """Bytes in the largest unit that leaves a number above one."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def time_text(time_ms: int) -> str:
    """A wall clock time in UTC, to the second; milliseconds where no calendar reaches."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def partition_label(store: TableStore, partition: bytes) -> str:
    """The partition's folder and a slash, or nothing for an unpartitioned table."""
    path = store.partition_path(partition)
    return f"{path}/" if path else ""


def _header(store: TableStore, name: str) -> list[str]:
    schema = store.schema
    kind = f"primary key ({', '.join(schema.primary_keys)})" if schema.has_primary_key else "append-only"
    lines = [f"{name}: {kind}", f"at {store.paths.location}", f"schema {schema.id}:"]
    width = max(len(column.name) for column in schema.fields)
    lines += [f"  {column.name:<{width}}  {column.type}" for column in schema.fields]
    if schema.partition_keys:
        lines.append(f"partitioned by {', '.join(schema.partition_keys)}")
    lines += [f"  {key} = {value}" for key, value in sorted(schema.options.items())]
    return lines


def _snapshot_lines(snapshot: Snapshot | None) -> list[str]:
    if snapshot is None:
        return ["no snapshot yet: nothing was committed"]
    return [
        f"snapshot {snapshot.id}: {snapshot.commit_kind} by {snapshot.commit_user} #{snapshot.commit_identifier} "
        f"at {time_text(snapshot.time_ms)}, {snapshot.total_record_count:,} records stored"
    ]


def _bucket_lines(store: TableStore, entries: Sequence[ManifestEntry]) -> list[str]:
    def bucket_of(entry: ManifestEntry) -> tuple[bytes, int]:
        return entry.partition, entry.bucket

    lines: list[str] = []
    ordered = sorted(entries, key=bucket_of)
    buckets = [(bucket, [entry.file for entry in group]) for bucket, group in groupby(ordered, key=bucket_of)]
    for (partition, bucket), files in buckets[:BUCKETS_SHOWN]:
        lines += _levels(store, f"{partition_label(store, partition)}bucket-{bucket}", files)
    if len(buckets) > BUCKETS_SHOWN:
        lines.append(f"… and {len(buckets) - BUCKETS_SHOWN} more buckets")
    return lines


def _levels(store: TableStore, label: str, files: Sequence[DataFileMeta]) -> list[str]:
    size = sum(file.file_size_bytes for file in files)
    runs = build_levels(files, store.options.num_levels, KeyComparator(store.key_types).sort_key).runs
    rows = sum(file.row_count for file in files)
    lines = [f"{label}    {_count(len(runs), 'run')}, {rows:,} rows, {size_text(size)}"]
    return lines + [_run_line(store, run, size) for run in runs]


def _run_line(store: TableStore, level_run: LevelRun, bucket_bytes: int) -> str:
    files = level_run.run.files
    filled = round(BAR_WIDTH * level_run.size_bytes / max(bucket_bytes, 1))
    bar = "█" * filled if filled else "▏"
    rows = sum(file.row_count for file in files)
    deletes = sum(file.delete_row_count or 0 for file in files)
    sequence = f"seq {min(f.min_sequence_number for f in files)}..{max(f.max_sequence_number for f in files)}"
    parts = [
        f"  L{level_run.level}  {bar:<{BAR_WIDTH}}  {rows:>10,} rows {size_text(level_run.size_bytes):>10}  {sequence}",
        f"{deletes} deletes" if deletes else "",
        _key_range(store, files),
        files[0].file_name if len(files) == 1 else _count(len(files), "file"),
    ]
    return "  ".join(part for part in parts if part)


def _key_range(store: TableStore, files: Sequence[DataFileMeta]) -> str:
    if not store.schema.has_primary_key:
        return ""
    return f"keys {_key_text(store, files[0].min_key)} .. {_key_text(store, files[-1].max_key)}"


def _key_text(store: TableStore, key: bytes) -> str:
    values = decode_row(key, store.key_types)
    text = ", ".join(str(value) for value in values)
    return text if len(text) <= KEY_TEXT_MAX else text[: KEY_TEXT_MAX - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
