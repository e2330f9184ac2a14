"""Options that say what rows are there, and that a changed schema does not make others of them.

| option | refused once there are rows | the safe way |
|---|---|---|
| `Option.reinterprets`, and `fields.…` | where several files have rows of one key, or retracts | a full compaction |
| `ignore-delete` | where there are retracts | a full compaction |
| `deletion-vectors.enabled` | without `deletion-vectors.modifiable` | with it: `maintenance.vector_switch` |

What is asked for the columns that are new, or go, in the same change makes nothing other than it was. Apache Paimon
changes the options all the same, but for that of vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declaration import OPTIONS
from freshet.storage.options.keys import present_key, reinterprets
from freshet.storage.options.named_columns import columns_named, with_names

VECTORS: Final = CoreOptions.deletion_vectors_enabled.key
_IGNORE_DELETE: Final = CoreOptions.ignore_delete.key


class VectorsUnsettledError(InvalidRequestError):
    """Level 0, several runs or vectors are there, which one of the two ways of reading takes for something else."""


def check_present(
    table: str,
    before: TableSchema,
    after: TableSchema,
    manifests: ManifestStore,
    snapshot: Snapshot | None,
    *,
    allow_lossy: bool,
) -> None:
    """Raises `InvalidRequestError` where other options would make other rows of what is there; files are looked at only
    where they may."""
    keys = sorted(reinterpreted(before, after)) if snapshot is not None else []
    if VECTORS in keys:
        if not CoreOptions.deletion_vectors_modifiable.of(after.options):
            raise InvalidRequestError(
                f"option {VECTORS} of table {table} is fixed once there are snapshots: rows that are there would be "
                "missing, or there twice. Set deletion-vectors.modifiable=true as well; the "
                "table is compacted in full then before the option changes",
                table=table,
                option=VECTORS,
            )
        if not are_vectors_settled(manifests, snapshot, has_key=before.has_primary_key):
            raise VectorsUnsettledError(f"table {table} is not compacted in full", table=table, option=VECTORS)
    keys = [key for key in keys if key != VECTORS]
    if not keys or allow_lossy or not before.has_primary_key:
        return
    files = live_entries(manifests, snapshot)
    retracts = [entry for entry in files if entry.file.delete_row_count != 0]
    if retracts or (set(keys) != {_IGNORE_DELETE} and _have_several_runs(files)):
        raise InvalidRequestError(
            f"option {keys[0]} of table {table} says what its rows are where several files have rows of one key: those "
            "that are there would change at once. Compact the table in full first (freshet compact, Table.compact), so "
            "that it counts for rows written from then on; or say that they may (allow_lossy, --allow-lossy)",
            table=table,
            option=keys[0],
        )


def check_restorable(
    table: str, then: TableSchema, now: TableSchema, manifests: ManifestStore, snapshot: Snapshot
) -> None:
    """Raises `InvalidRequestError` where a snapshot of an earlier schema would have other rows by those of now."""
    keys = sorted(reinterpreted(then, now))
    if not keys:
        return
    if VECTORS in keys and not are_vectors_settled(manifests, snapshot, has_key=then.has_primary_key):
        key = VECTORS
    elif then.has_primary_key and set(keys) != {VECTORS} and _have_several_runs(live_entries(manifests, snapshot)):
        key = next(key for key in keys if key != VECTORS)
    else:
        return
    raise InvalidRequestError(
        f"table {table} cannot be rolled back to snapshot {snapshot.id}: option {key} has changed since, and its rows "
        f"would be others. Read them (scan(snapshot_id={snapshot.id})) and overwrite the table with them",
        table=table,
        option=key,
    )


def reinterpreted(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """The options that say something else of rows of both schemas, by their names in the later one."""
    now = {field.id: field.name for field in after.fields}
    names = {field.name: now.get(field.id, field.name) for field in before.fields}
    stays = {name for name in names.values() if name in after.by_name}

    def now_named(name: str) -> str:
        return names.get(name, name)

    old = dict(with_names(key, text, before.by_name, now_named) for key, text in before.options.items())
    for key in {*map(present_key, old), *map(present_key, after.options)}:
        if not reinterprets(key):
            continue
        if key in OPTIONS:
            is_other = OPTIONS[key].of(old) != OPTIONS[key].of(after.options)
            named: Collection[str] = ()
        else:
            is_other = old.get(key) != after.options.get(key)
            everywhere = {*before.by_name, *after.by_name}
            named = {*columns_named(key, old.get(key, ""), everywhere)}
            named |= columns_named(key, after.options.get(key, ""), everywhere)
        if is_other and (not named or stays.intersection(named)):
            yield key


def are_vectors_settled(manifests: ManifestStore, snapshot: Snapshot | None, *, has_key: bool) -> bool:
    """Whether a table is read the same with vectors and without: it has none, and each key one row above level 0."""
    if snapshot is None:
        return True
    index = manifests.read_index_manifest(snapshot.index_manifest)
    if any(entry.marked_files for entry in index):
        return False
    files = live_entries(manifests, snapshot) if has_key else []
    return not (any(entry.file.level == 0 for entry in files) or _have_several_runs(files))


def _have_several_runs(files: Sequence[ManifestEntry]) -> bool:
    """Whether a key may be in several files; each file of level 0 is a run, and waiting rows are merged with others."""
    runs: dict[tuple[bytes, int], set[tuple[int, str]]] = {}
    for entry in files:
        if entry.bucket < 0:
            return True
        level = entry.file.level
        runs.setdefault(entry.bucket_id, set()).add((level, "" if level else entry.file.file_name))
    return any(len(each) > 1 for each in runs.values())
