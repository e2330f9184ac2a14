"""Changes of a table's schema: the next schema file, upon what others change meanwhile, unless rows that are there
forbid it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from freshet.storage.exceptions import ConflictError, InvalidRequestError, NotFoundError
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.table_store import TableStore, open_table_store, own_core_options
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declaration import OPTIONS, present_key, reinterprets
from freshet.storage.options.named_columns import columns_named, with_names
from freshet.storage.schema.change import SchemaChange
from freshet.storage.schema.changed_schema import apply_changes
from freshet.storage.schema.validation import validate_changed_schema

ALTER_ATTEMPTS: Final = 10

VECTORS: Final = CoreOptions.deletion_vectors_enabled.key
_IGNORE_DELETE: Final = CoreOptions.ignore_delete.key


def alter_table(store: TableStore, changes: Sequence[SchemaChange], *, allow_lossy: bool) -> TableStore:
    """The table at its schema with these changes, upon what others change meanwhile; raises as `Table.alter` says."""
    store.claims.check_writable()
    store.check_is_there()  # the next table of the name would get the columns of this one
    for _ in range(ALTER_ATTEMPTS):
        current = store.schemas.latest()
        if current is None:
            raise NotFoundError(
                f"table {store.name} was dropped or renamed while it was open; there is nothing to alter",
                table=store.name,
            )
        latest = store.snapshots.latest()
        changed = apply_changes(
            current,
            changes,
            has_snapshot=latest is not None,
            time_ms=store.env.now_ms(),
            allow_lossy=allow_lossy,
        )
        validate_changed_schema(current, changed)
        old, new = (own_core_options(schema, store.paths.branch_name) for schema in (current, changed))
        check_emitted(store.name, old, new, store.manifests, latest)
        _check_present(store.name, current, changed, store.manifests, latest, allow_lossy=allow_lossy)
        if store.claims.claim_schema(changed):
            return open_table_store(
                store.env,
                store.paths.location,
                name=store.name,
                claims=store.claims,
                branch=store.paths.branch_name,
            )
    raise ConflictError(
        f"table {store.name}: the schema was changed by others {ALTER_ATTEMPTS} times; try again", table=store.name
    )


def emitted_levels(options: CoreOptions) -> Callable[[int], bool]:
    """The levels whose rows the changelog has emitted. Level 0 counts where changes are emitted as they are written,
    also of tables whose scans do not show it."""
    emits = options.changelog_producer.emits
    if emits.only_at_highest_level:
        highest = options.num_levels - 1
        return lambda level: level == highest
    lowest = 1 if emits.in_compactions else 0
    return lambda level: level >= lowest


def check_emitted(
    table: str, old: CoreOptions, new: CoreOptions, manifests: ManifestStore, snapshot: Snapshot | None
) -> None:
    """The check which rows of a keyed table its changelog has emitted, and that a changed schema does not say
    otherwise. Raises `InvalidRequestError` where the changelog that a table is to have differs in what it has emitted.
    Files are read only where it may. From and to `none` there is a gap anyway, at which readers stop.

    | `changelog-producer` | has emitted the rows of |
    |---|---|
    | none, input | all levels: as they are written |
    | lookup | levels from 1 on: a compaction of level 0 emits them |
    | full-compaction | the highest level |

    Where another producer, or another number of levels, says otherwise of rows that are there, their changes would be
    emitted twice, or never: the readers' sums would be wrong. Apache Paimon changes the option all the same.
    """
    producers = old.changelog_producer, new.changelog_producer
    if ChangelogProducer.NONE in producers or not (old.has_primary_key and new.has_primary_key):
        return
    was_emitted, is_emitted = emitted_levels(old), emitted_levels(new)
    levels = range(max(old.num_levels, new.num_levels))
    if all(was_emitted(level) == is_emitted(level) for level in levels):
        return
    files = [entry.file for entry in live_entries(manifests, snapshot) if entry.bucket >= 0]
    count = sum(was_emitted(file.level) != is_emitted(file.level) for file in files)
    if not count:
        return
    found = f"{count} {'file' if count == 1 else 'files'}"
    if old.changelog_producer is new.changelog_producer:
        raise InvalidRequestError(
            f"table {table} has changelog-producer=full-compaction, and with {new.num_levels} levels instead of "
            f"{old.num_levels} the rows of {found} would be told again: set num-levels to {old.num_levels} as well",
            table=table,
            option="num-levels",
        )
    is_told = any(was_emitted(file.level) and not is_emitted(file.level) for file in files)
    has, would = ("has told", "would tell again") if is_told else ("has not told yet", "would never tell")
    raise InvalidRequestError(
        f"table {table} has {found} whose changes changelog-producer={old.changelog_producer} {has} and "
        f"{new.changelog_producer} {would}. Stop the writers, compact it in full (freshet compact, Table.compact), "
        "and change the option then",
        table=table,
        option="changelog-producer",
    )


class VectorsUnsettledError(InvalidRequestError):
    """Level 0, several runs or vectors are there, which one of the two ways of reading takes for something else."""


def _check_present(
    table: str,
    before: TableSchema,
    after: TableSchema,
    manifests: ManifestStore,
    snapshot: Snapshot | None,
    *,
    allow_lossy: bool,
) -> None:
    """The check of options that say what rows are there, that a changed schema does not make others of them. Raises
    `InvalidRequestError` where other options would make other rows of what is there; files are looked at only where
    they may.

    | option | refused once there are rows | the safe way |
    |---|---|---|
    | `Option.reinterprets`, `fields.…` | where several files have rows of one key, or retracts | a full compaction |
    | `ignore-delete` | where there are retracts | a full compaction |
    | `deletion-vectors.enabled` | without `deletion-vectors.modifiable` | with it: `maintenance.vector_switch` |

    What is asked for the columns that are new, or go, in the same change makes nothing other than it was. Apache Paimon
    changes the options all the same, but for that of vectors.
    """
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
