"""Everything that works on one table needs: its place, its schema, its options, and the stores of its metadata.

The value is frozen: a schema change or another set of dynamic options gives another store. Dynamic options apply to
this store only and are never saved; those that decide what bytes mean cannot be given so.

Source: FORMAT.md §1, §2, §15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar

from freshet.storage.catalogs.claims import TableClaims
from freshet.storage.catalogs.metastore import BRANCH, named_branch, split_branch, with_branch
from freshet.storage.catalogs.registry import claims_of, folder_claims, is_found_again
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.codec.partition_path import partition_path
from freshet.storage.exceptions import (
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    MissingFileError,
    NotFoundError,
    StorageError,
)
from freshet.storage.io.env import Env
from freshet.storage.io.removal import Removal
from freshet.storage.metadata.branch_opening import asked_branch, check_whole, no_branch, own_options
from freshet.storage.metadata.consumer_store import ConsumerStore
from freshet.storage.metadata.deletion_vector_store import DeletionVectorStore
from freshet.storage.metadata.expired_snapshots import ChangelogStore, HistoryStore
from freshet.storage.metadata.external_files import ExternalFiles
from freshet.storage.metadata.hash_index_store import HashIndexStore
from freshet.storage.metadata.live_file_index import LiveFileIndex
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_handle import TableHandle
from freshet.storage.model.data_type import DataType
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions, check_access, check_option_keys, readable_options
from freshet.storage.options.declaration import IMMUTABLE_KEYS, OPTIONS, present_key, reinterprets
from freshet.storage.options.option import Access
from freshet.storage.options.retracts import RetractRule, retract_rule
from freshet.storage.paths import SCHEMA_PREFIX, TablePaths, canonical_location
from freshet.storage.schema.validation import check_dynamic_options

EXPIRED_MAX: Final = 16
"""Snapshots that may expire, one after the other, while their manifests are read."""

T = TypeVar("T")

PARTITIONS_MAX: Final = 10_000
"""Partitions whose decoded bytes are kept: each of their files asks for them."""

_BRANCH_FOLDER: Final = re.compile(r"(.+)/branch/branch-([^/]+)")
_NEVER_DYNAMIC: Final = IMMUTABLE_KEYS | {"bucket"}


@dataclass(frozen=True)
class TableStore:
    """One table at one schema. May be shared by threads; it is pickled as its handle."""

    env: Env
    name: str
    paths: TablePaths
    schema: TableSchema
    options: CoreOptions
    dynamic_options: Mapping[str, str] = field(repr=False)
    """What was given for this opening, over the options of the table."""
    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestStore
    live: LiveFileIndex
    vectors: DeletionVectorStore
    claims: TableClaims

    def __reduce__(self) -> tuple[Callable[[TableHandle], TableStore], tuple[TableHandle]]:
        return open_store, (self.handle,)

    def __copy__(self) -> TableStore:
        return self

    def __deepcopy__(self, _memo: object) -> TableStore:
        return self

    @property
    def handle(self) -> TableHandle:
        """The table for other processes; `InvalidRequestError` where they cannot reach it as this one does."""
        settings = self.env.settings
        if settings is None:
            raise InvalidRequestError(
                f"table {self.name} cannot be sent to another process: it is reached through a "
                f"{type(self.env).__name__} of this process ({type(self.env.file_io).__name__} at {self.location}), "
                "and another one would take other files for it, or none. Use it in this process, or open it without "
                "env= at a location that all processes reach",
                table=self.name,
            )
        if not is_found_again(self.claims, settings):
            raise InvalidRequestError(
                f"table {self.name} cannot be sent to another process: its commits are claimed through "
                f"{type(self.claims).__name__} of this process, and another one would commit without them. Use it in "
                "this process, or open it with Catalog(warehouse, options=…) and without env=, with options from which "
                "other processes open the same catalog, and its lock if it has one",
                table=self.name,
            )
        return TableHandle(
            self.paths.location,
            self.name,
            self.schema.id,
            self.schema.time_ms,
            tuple(sorted(self.dynamic_options.items())),
            settings,
            self.paths.branch_name,
        )

    @property
    def location(self) -> str:
        """Folder of the table; of a branch that of its schemas and snapshots."""
        return self.paths.home

    @property
    def removal(self) -> Removal:
        """Removes files of the table, and none behind links."""
        return Removal(self.env.file_io, self.paths.location)

    @cached_property
    def changelogs(self) -> ChangelogStore:
        """Changelogs kept longer than their snapshots."""
        return ChangelogStore(self.env, self.paths)

    @cached_property
    def consumers(self) -> ConsumerStore:
        """Positions of streaming readers that have a name."""
        return ConsumerStore(self.env, self.paths)

    @cached_property
    def history(self) -> HistoryStore:
        """What snapshots that have expired said of their commits."""
        return HistoryStore(self.env, self.paths)

    @cached_property
    def hash_indexes(self) -> HashIndexStore:
        """Where the keys of dynamic buckets are."""
        return HashIndexStore(self.env, self.paths, self.manifests)

    @cached_property
    def partition_types(self) -> tuple[DataType, ...]:
        """Types of the partition keys, in their order."""
        return self.schema.types_of(self.schema.partition_keys)

    @cached_property
    def moves_rows(self) -> bool:
        """True where a key may be in any partition, so that a row of it may move from one to another."""
        return self.options.has_dynamic_buckets and self.schema.keys_cross_partitions

    @property
    def reassigns_keys(self) -> bool:
        """True where what an overwrite or a rollback puts in the place of a row may be in another bucket."""
        return self.options.has_dynamic_buckets and self.schema.has_primary_key

    @cached_property
    def retract_rule(self) -> RetractRule | None:
        """What rows of kind -U and -D hold, and with which rows they may be merged; None without such a rule."""
        return retract_rule(self.schema, self.options)

    @cached_property
    def key_types(self) -> tuple[DataType, ...]:
        """Types of the trimmed primary key: of `min_key` and `max_key`."""
        return self.schema.types_of(self.schema.trimmed_primary_keys)

    @cached_property
    def bucket_key(self) -> tuple[str, ...]:
        """Columns whose hash decides the bucket; none for an append table without buckets."""
        return self.options.bucket_key or self.schema.trimmed_primary_keys

    @cached_property
    def bucket_key_types(self) -> tuple[DataType, ...]:
        """Types of the bucket key."""
        return self.schema.types_of(self.bucket_key)

    @cached_property
    def partition_path(self) -> Callable[[bytes], str]:
        """Path of a partition below the data root, decoded once; empty for an unpartitioned table."""
        keys, types, options = self.schema.partition_keys, self.partition_types, self.options

        @lru_cache(PARTITIONS_MAX)
        def path(partition: bytes) -> str:
            return partition_path(partition, keys, types, options.partition_default_name, options.partition_legacy_name)

        return path

    @cached_property
    def partition_values(self) -> Callable[[bytes], tuple[Any, ...]]:
        """Values of a partition's keys, decoded once."""
        types = self.partition_types
        return lru_cache(PARTITIONS_MAX)(lambda partition: tuple(decode_row(partition, types)) if types else ())

    def bucket_folder(self, partition: bytes, bucket: int) -> str:
        """Folder of one bucket."""
        return self.paths.bucket_folder(self.partition_path(partition), bucket)

    def data_file(self, partition: bytes, bucket: int, file_name: str, external_path: str | None = None) -> str:
        """Path of a data or changelog file."""
        return self.paths.data_file(self.partition_path(partition), bucket, file_name, external_path)

    def check_writable(self) -> None:
        """Raises `UnsupportedFeatureError` when a commit would lose or break something of this table,
        `InvalidRequestError` where nothing coordinates its writers."""
        check_access(self.options, Access.WRITE, self.location)
        self.claims.check_writable()

    def check_is_there(self) -> None:
        """Raises `NotFoundError` when the table was dropped, and maybe created again, since it was opened; one call."""
        try:
            self.schemas.check_same(self.schema)
        except ConflictError as error:
            raise NotFoundError(
                f"the table at {self.location} was dropped and created again while it was open; open it anew",
                table=self.location,
            ) from error
        except NotFoundError as error:
            raise NotFoundError(
                f"the table at {self.location} was dropped or renamed while it was open; a renamed one goes on under "
                "its new name, with its snapshots and consumers",
                table=self.location,
            ) from error

    @contextmanager
    def naming_dropped_table(self) -> Iterator[None]:
        """Where the table was dropped, errors about what is missing or damaged become the `NotFoundError` that says so:
        a drop removes the files of a table one by one, the schema first.
        """
        try:
            yield
        except (CorruptDataError, NotFoundError):
            self.check_is_there()
            raise

    def at_latest(self, read: Callable[[Snapshot | None], T]) -> T:
        """What `read` makes of the latest snapshot, or of a later one where that expires meanwhile."""
        return self.retry_on_newer(self.snapshots.latest(), read)

    def retry_on_newer(self, snapshot: Snapshot | None, read: Callable[[Snapshot | None], T]) -> T:
        """What `read` makes of the snapshot, or of the latest one where the snapshot expires meanwhile.

        Expiry leaves the latest snapshot alone: where nothing has followed, the file that is missing is lost, and the
        `NotFoundError` or `MissingFileError` is raised.
        """
        for _ in range(EXPIRED_MAX):
            try:
                return read(snapshot)
            except (NotFoundError, MissingFileError):
                latest = self.snapshots.latest()
                if snapshot is None or latest is None or latest.id <= snapshot.id:
                    raise
                snapshot = latest
        return read(snapshot)

    def at_schema(self, schema_id: int) -> TableStore:
        """The table as it was at another schema: its columns, and options that fit them.

        Options name columns, so those of the other schema count; what was given for this opening stays on top.
        """
        schema = self.schemas.schema(schema_id)
        options = own_core_options(schema, self.paths.branch_name, self.dynamic_options)
        return replace(self, schema=schema, options=options)

    def at_latest_schema(self) -> TableStore:
        """The table at its newest schema; raises when it was dropped, or created again, since it was opened."""
        newest = self.schemas.check_current(self.schema)
        return self if newest == self.schema.id else self.at_schema(newest)

    def with_options(self, options: Mapping[str, str], *, at_latest: bool = False) -> TableStore:
        """The same table, at its latest schema if so asked, with dynamic options on top of its own and of those that it
        was opened with; the option `branch` gives a branch of it, at that one's latest schema."""
        own = self.paths.branch_name
        branch = named_branch(options[BRANCH]) if BRANCH in options else own
        if own is not None and branch != own:
            raise InvalidRequestError(
                f"{self.name} is a branch, and option {BRANCH}={options[BRANCH]} names another one: open that by its "
                "name",
                table=self.name,
                option=BRANCH,
            )
        return open_table_store(
            self.env,
            self.paths.location,
            options={**self.dynamic_options, **options},
            schema_id=self.schema.id if branch == own and not at_latest else None,
            name=self.name,
            claims=self.claims,
            branch=branch,
        )


def open_table_store(
    env: Env,
    location: str,
    *,
    options: Mapping[str, str] | None = None,
    schema_id: int | None = None,
    name: str | None = None,
    claims: TableClaims | None = None,
    branch: str | None = None,
) -> TableStore:
    """Opens the table in a folder, at its latest schema unless another is asked for; messages call it by its name, or
    else by its folder.

    `branch`, or the option of this name, opens a branch of it: what is read and written, altered and expired then is
    the branch. It has no log: what the options of its schema say of one is meant for the table.

    `claims` are those of the table's catalog; without them commits are exclusive creates.

    Raises `NotFoundError` when there is no table, `MissingFileError` when it has snapshots and no schema,
    `UnsupportedFeatureError` when it cannot be read rightly.
    """
    location = canonical_location(location)
    folder = _BRANCH_FOLDER.fullmatch(location)
    if folder is not None and branch is None and any(env.file_io.entries(TablePaths(folder[1]).schema_folder)):
        location, branch = folder[1], folder[2]  # the location of a branch, as its table gives it
    options, branch = asked_branch(options or {}, branch, name or location)
    name = with_branch(split_branch(name or location)[0], branch)
    paths = TablePaths(location).branch(branch)
    schemas = SchemaStore(env, paths)
    schema = schemas.latest() if schema_id is None else schemas.schema(schema_id)
    if schema is None:
        raise _no_schema(env, paths, name) if branch is None else no_branch(env, paths, name)
    if branch is not None:
        check_whole(env, paths, name)
    effective = _effective_options(schema, options, branch)
    core = readable_options(schema, paths.home, effective)
    if options:
        check_dynamic_options(schema, core, options.keys())
    paths = TablePaths(location, core.data_file_path_directory, branch)
    claims = claims or folder_claims(env, location)
    snapshots = SnapshotStore(env, paths)
    outside = ExternalFiles(env, paths, effective, schemas)
    manifests = ManifestStore(env, paths, core, schema.types_of(schema.partition_keys), outside=outside)
    return TableStore(
        env=env,
        name=name,
        paths=paths,
        schema=schema,
        options=core,
        dynamic_options=dict(options),
        schemas=schemas,
        snapshots=snapshots,
        manifests=manifests,
        live=LiveFileIndex(snapshots, manifests),
        vectors=DeletionVectorStore(env, paths),
        claims=claims if branch is None else claims.on_branch(branch),
    )


def _no_schema(env: Env, paths: TablePaths, name: str) -> StorageError:
    """For a folder without a schema file; snapshots in it are of a table that lost them, or was dropped in part."""
    if not any(env.file_io.entries(paths.snapshot_folder)):
        return NotFoundError(
            f"there is no table at {paths.location}: it has no schema file; create it first, or check the path"
        )
    needed = 0
    with suppress(StorageError):
        latest = SnapshotStore(env, paths).latest()
        needed = needed if latest is None else latest.schema_id
    lost = f"{SCHEMA_PREFIX}0" + (f" to {SCHEMA_PREFIX}{needed}" if needed else "")
    return MissingFileError(
        f"table {name} has snapshots, and no schema file is there: restore {lost} in {paths.schema_folder} from a "
        "backup; if dropping it was interrupted, drop it again",
        path=paths.schema(needed),
    )


def open_store(handle: TableHandle) -> TableStore:
    """The table of a handle that came from another process; every table that travels is opened here.

    Raises `NotFoundError` where it was dropped since, `ConflictError` where it was created again besides.
    """
    try:
        store = open_table_store(
            handle.env,
            handle.location,
            options=dict(handle.options) or None,
            schema_id=handle.schema_id,
            name=handle.name,
            claims=claims_of(handle.env, handle.settings, split_branch(handle.name)[0]),
            branch=handle.branch,
        )
    except NotFoundError as error:
        raise NotFoundError(
            f"the table at {handle.location} was dropped after this was planned; open it again if there is one of this "
            "name",
            table=handle.location,
        ) from error
    if handle.schema_time_ms not in (None, store.schema.time_ms):
        raise ConflictError(
            f"the table at {handle.location} was dropped and created again after this was planned; open it anew, or "
            "start the pipeline anew",
            table=handle.location,
        )
    return store


def own_core_options(schema: TableSchema, branch: str | None, dynamic: Mapping[str, str] | None = None) -> CoreOptions:
    """The options of a schema, on a branch where that is given, and what is given for one opening on top."""
    return CoreOptions.parse(
        {**own_options(schema, branch), **(dynamic or {})},
        has_primary_key=schema.has_primary_key,
        schema_version=schema.version,
        strict=False,
    )


def _effective_options(schema: TableSchema, dynamic: Mapping[str, str], branch: str | None) -> dict[str, str]:
    # Only what was typed here is checked for spelling: the table may carry keys of other programs.
    check_option_keys(dynamic)
    for key, value in dynamic.items():
        is_fixed = key in _NEVER_DYNAMIC or reinterprets(key)
        if is_fixed and schema.options.get(key) != value and not _says_the_same(schema, key, value):
            raise InvalidRequestError(
                f"option {key} decides what the table's files mean and cannot be given when opening it; "
                f"it is {schema.options.get(key, 'not set')} in the table at schema {schema.id}. Table.alter changes "
                "what may be changed",
                option=key,
            )
    return {**own_options(schema, branch), **dynamic}


def _says_the_same(schema: TableSchema, key: str, value: str) -> bool:
    """Whether an option that reinterprets rows has this value anyway, by default or in other words."""
    option = OPTIONS.get(present_key(key))
    return option is not None and reinterprets(key) and option.of(schema.options) == option.of({key: value})
