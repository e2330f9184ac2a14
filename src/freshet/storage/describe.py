"""A table as text: its columns, its latest snapshot, and the levels of each bucket as a drawing.

    dt=19675/bucket-0  3 runs, 1,203 rows, 4.2 MB
      L0  ▏                 120 rows   12.0 KB  seq 1083..1202  keys 4 .. 977
      L0  ▏                  83 rows    9.1 KB  seq 1000..1082  keys 12 .. 480
      L5  ████████████  1,000 rows    4.2 MB  2 files  keys 1 .. 999

The newest run is on top; the bar is the share of the bucket's bytes; rows that deletion vectors mark are counted too.
Lines have at most `WIDTH` characters (a location may be longer), and no control character of a name or key reaches the
terminal. `table_facts` gives the same as values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.sorted_runs import LevelRun, build_levels
from freshet.storage.metadata.live_files import LiveFiles, delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.display import plural, printable, rfc3339, shortened, size_text, time_text
from freshet.storage.model.manifest import BucketId, EntryKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.shown import Facts, facts_html, rows_html
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.secrets import shown_options, shown_text
from freshet.storage.paths import bucket_name

WIDTH: Final = 100
BAR_WIDTH: Final = 12
KEY_TEXT_MAX: Final = 14
BUCKETS_SHOWN: Final = 64
RUNS_SHOWN: Final = 10
"""Newest runs of a bucket, and as many of its oldest; without compaction there may be thousands between them."""

_COLUMNS_MAX: Final = 200


class CommitRows(Frozen):
    """Rows of one commit by their kind; None where the files do not say, or the commit only rewrote files."""

    written: int | None
    deleted: int | None


def describe_table(store: TableStore, name: str) -> str:
    """The whole description, lines joined by newlines."""
    return store.at_latest(lambda snapshot: _described(store, name, snapshot))


def _described(store: TableStore, name: str, snapshot: Snapshot | None) -> str:
    lines = [*_header(store, name), *_snapshot_lines(snapshot)]
    if snapshot is not None:
        live = store.live.at(snapshot)
        sizes = [entry.file.file_size_bytes for entry in live.entries()]
        lines.append(f"{plural(len(sizes), 'file')}, {size_text(sum(sizes))}")
        if sizes:
            legend = "levels of each bucket, newest on top; a bar is the share of the bucket's bytes"
            lines += ["", legend, *_bucket_lines(store, live, marked_row_counts(store, snapshot))]
    return "\n".join(lines)


def table_facts(store: TableStore, name: str) -> dict[str, Any]:
    """What `describe_table` says, as values that JSON can hold."""
    return store.at_latest(lambda snapshot: _facts(store, name, snapshot))


def _facts(store: TableStore, name: str, snapshot: Snapshot | None) -> dict[str, Any]:
    schema = store.schema
    return {
        "table": name,
        "location": shown_text(store.location),
        "schema_id": schema.id,
        "comment": schema.comment,
        "columns": [
            {"name": field.name, "type": str(field.type), "comment": field.description} for field in schema.fields
        ],
        "primary_key": list(schema.primary_keys),
        "partition_by": list(schema.partition_keys),
        "options": shown_options(schema.options),
        "snapshot": None if snapshot is None else _snapshot_facts(snapshot),
        "buckets": [] if snapshot is None else _bucket_facts(store, snapshot),
    }


def marked_row_counts(store: TableStore, snapshot: Snapshot | None) -> dict[str, int]:
    """Rows that deletion vectors mark at a snapshot, by name of the data file."""
    if snapshot is None:
        return {}
    marking = store.manifests.marking_files(snapshot.index_manifest)
    return store.vectors.counts([file for files in marking.values() for file in files])


def commit_rows(store: TableStore, snapshot: Snapshot) -> CommitRows:
    """How many rows a commit wrote and how many deletions it brought, from the files it added."""
    if snapshot.commit_kind is CommitKind.COMPACT:
        return CommitRows(None, None)
    added = [entry.file for entry in delta_entries(store.manifests, snapshot) if entry.kind is EntryKind.ADD]
    if any(file.delete_row_count is None for file in added):
        return CommitRows(None, None)
    deleted = sum(file.delete_row_count or 0 for file in added)
    return CommitRows(sum(file.row_count for file in added) - deleted, deleted)


def partition_label(store: TableStore, partition: bytes) -> str:
    """The partition's folder and a slash, or nothing for an unpartitioned table."""
    path = store.partition_path(partition)
    return f"{path}/" if path else ""


def _header(store: TableStore, name: str) -> list[str]:
    schema = store.schema
    kind = f"primary key ({', '.join(schema.primary_keys)})" if schema.has_primary_key else "append-only"
    title = _wrapped(f"{name}: {kind}{_comment(schema.comment)}", 2)
    lines = [*title, printable(f"at {store.location}"), f"schema {schema.id}:"]
    width = max(len(printable(column.name)) for column in schema.fields)
    for column in schema.fields:
        lines += _wrapped(f"  {printable(column.name):<{width}}  {column.type}{_comment(column.description)}", 4)
    if schema.partition_keys:
        lines += _wrapped(f"partitioned by {', '.join(schema.partition_keys)}", 2)
    for key, value in sorted(shown_options(schema.options).items()):
        lines += _wrapped(f"  {key} = {value}", 4)
    return lines


def _comment(text: str | None) -> str:
    return f"  -- {text}" if text else ""


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH, subsequent_indent=" " * indent, drop_whitespace=True, replace_whitespace=False
    )


def _snapshot_lines(snapshot: Snapshot | None) -> list[str]:
    if snapshot is None:
        return ["no snapshot yet: nothing was committed"]
    return _wrapped(
        f"snapshot {snapshot.id}: {snapshot.commit_kind} by {snapshot.commit_user} #{snapshot.commit_identifier} "
        f"at {time_text(snapshot.time_ms)}, {plural(snapshot.total_record_count, 'record')} stored",
        2,
    )


def _snapshot_facts(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "kind": str(snapshot.commit_kind),
        "commit_user": snapshot.commit_user,
        "identifier": snapshot.commit_identifier,
        "time": rfc3339(snapshot.time_ms),
        "records": snapshot.total_record_count,
    }


def _bucket_facts(store: TableStore, snapshot: Snapshot) -> list[dict[str, Any]]:
    marked = marked_row_counts(store, snapshot)
    return [
        {
            "partition": store.partition_path(partition),
            "bucket": bucket,
            "files": len(files),
            "rows": sum(file.row_count for file in files),
            "marked_rows": sum(marked.get(file.file_name, 0) for file in files),
            "size_bytes": sum(file.file_size_bytes for file in files),
            "runs": [
                {
                    "level": run.level,
                    "files": len(run.run.files),
                    "rows": sum(file.row_count for file in run.run.files),
                    "size_bytes": run.size_bytes,
                }
                for run in _runs(store, files)
            ],
        }
        for (partition, bucket), files in _by_bucket(store.live.at(snapshot))
    ]


def _by_bucket(live: LiveFiles) -> list[tuple[BucketId, list[DataFileMeta]]]:
    return [(bucket, live.files_of(*bucket)) for bucket in sorted(live.by_bucket)]


def _runs(store: TableStore, files: Sequence[DataFileMeta]) -> Sequence[LevelRun]:
    return build_levels(files, store.options.num_levels, KeyComparator(store.key_types).sort_key).runs


def _bucket_lines(store: TableStore, live: LiveFiles, marked: Mapping[str, int]) -> list[str]:
    lines: list[str] = []
    buckets = _by_bucket(live)
    for (partition, bucket), files in buckets[:BUCKETS_SHOWN]:
        lines += _levels(store, f"{partition_label(store, partition)}bucket-{bucket_name(bucket)}", files, marked)
    if len(buckets) > BUCKETS_SHOWN:
        lines.append(f"… and {plural(len(buckets) - BUCKETS_SHOWN, 'more bucket')}")
    return lines


def _levels(store: TableStore, label: str, files: Sequence[DataFileMeta], marked: Mapping[str, int]) -> list[str]:
    size = sum(file.file_size_bytes for file in files)
    runs = _runs(store, files)
    rows = sum(file.row_count for file in files)
    lines = _wrapped(f"{label}  {plural(len(runs), 'run')}, {plural(rows, 'row')}, {size_text(size)}", 2)
    newest, oldest = runs[:RUNS_SHOWN], runs[max(RUNS_SHOWN, len(runs) - RUNS_SHOWN) :]
    between = runs[len(newest) : len(runs) - len(oldest)]
    lines += [_run_line(store, run, size, marked) for run in newest]
    if between:
        lines.append(f"  … {plural(len(between), 'more run')}, {size_text(sum(run.size_bytes for run in between))}")
    return lines + [_run_line(store, run, size, marked) for run in oldest]


def _run_line(store: TableStore, level_run: LevelRun, bucket_bytes: int, marked: Mapping[str, int]) -> str:
    files = level_run.run.files
    filled = round(BAR_WIDTH * level_run.size_bytes / max(bucket_bytes, 1))
    bar = "█" * filled if filled else "▏"
    rows = plural(sum(file.row_count for file in files), "row")
    deletes = sum(file.delete_row_count or 0 for file in files)
    marked_rows = sum(marked.get(file.file_name, 0) for file in files)
    sequence = f"seq {min(f.min_sequence_number for f in files)}..{max(f.max_sequence_number for f in files)}"
    parts = [
        f"  L{level_run.level}  {bar:<{BAR_WIDTH}}  {rows:>12} {size_text(level_run.size_bytes):>9}",
        sequence if len(files) == 1 else plural(len(files), "file"),
        plural(deletes, "delete") if deletes else "",
        f"{marked_rows:,} marked" if marked_rows else "",
        _key_range(store, files),
    ]
    line = printable("  ".join(part for part in parts if part))
    return shortened(line, WIDTH)


def _key_range(store: TableStore, files: Sequence[DataFileMeta]) -> str:
    if not store.schema.has_primary_key:
        return ""
    return f"keys {_key_text(store, files[0].min_key)} .. {_key_text(store, files[-1].max_key)}"


def _key_text(store: TableStore, key: bytes) -> str:
    values = decode_row(key, store.key_types)
    text = ", ".join(str(value) for value in values)
    return shortened(text, KEY_TEXT_MAX)


def table_html(store: TableStore) -> str:
    """What a notebook shows of a table: its columns, keys, options and latest snapshot, from two small files at most.
    Where the table is gone the page says so. Reads the schema that is there and the newest snapshot.
    """
    store.check_is_there()
    schema = store.schema
    return facts_html(f"Table {store.name}", _shown_facts(store), _columns(schema), _options(schema))


def _shown_facts(store: TableStore) -> Facts:
    schema, latest = store.schema, store.snapshots.latest()
    yield ("primary key", ", ".join(schema.primary_keys) or "none: rows are appended")
    yield ("partitioned by", ", ".join(schema.partition_keys))
    yield from (("comment", schema.comment), ("location", shown_text(store.location)), ("schema", str(schema.id)))
    if latest is None:
        yield ("snapshot", "none: nothing was committed")
        return
    yield ("snapshot", f"{latest.id}: {latest.commit_kind} by {latest.commit_user} at {time_text(latest.time_ms)}")
    yield ("records", latest.total_record_count)


def _columns(schema: TableSchema) -> str:
    rows = [
        (field.name, str(field.type), _role(schema, field.name), field.description or "")
        for field in schema.fields[:_COLUMNS_MAX]
    ]
    left_out = None if len(schema.fields) <= _COLUMNS_MAX else f"{_COLUMNS_MAX} of {len(schema.fields)} columns"
    return rows_html(("column", "type", "key", "comment"), rows, left_out=left_out)


def _role(schema: TableSchema, name: str) -> str:
    roles = (("primary key", schema.primary_keys), ("partition", schema.partition_keys))
    return ", ".join(role for role, names in roles if name in names)


def _options(schema: TableSchema) -> str:
    rows = sorted(shown_options(schema.options).items())
    return rows_html(("option", "value"), rows) if rows else ""
