"""The one door to the world: files, clock, ids, randomness, waiting, scratch space, and the points at which a test may
crash the program.

Nothing else in `storage` asks the operating system for any of these, so that faults and time can be played with. An
`Env` holds no state of a table and may be shared by threads.

Invariant: between two calls of `reach` nothing is assumed about the order in which bytes get to disk, except what
`FileIO` promises.
"""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from typing import Final, Never, Self, TypeVar
from urllib.parse import unquote

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.background import Background, GradualWork, Helpers
from freshet.storage.io.env_settings import EnvSettings
from freshet.storage.io.file_cache import CACHE_OPTIONS, FOLDER, CacheKind, CacheSettings, FileCache, cache_settings
from freshet.storage.io.file_io import FileIO, create_or_ask
from freshet.storage.io.local_cache import CacheFolder, LocalCache, ScratchFolders
from freshet.storage.io.registry import is_of_this_process, open_file_io, store_options
from freshet.storage.io.store_reads import ComingRead, StoreReads
from freshet.storage.paths import store_of

CHECK_CLAIMS: Final = "FRESHET_CHECK_CLAIMS"
"""Variable that switches `Env.checks_claims` on in a process and in those that it starts."""

LOCAL_DIRS: Final = "FRESHET_LOCAL_DIRS"
"""Variable that names the folders of this machine in which options of a table's schema may have scratch files and
caches put, below which all are; separated as those of PATH are."""

T = TypeVar("T")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"

ENVS_MAX: Final = 16
"""Environments that a process keeps for what comes from others."""

HELPERS_MIN: Final = 8
"""Threads for calls that are made in parallel; more where the store is worth it."""
FOR_TABLES: Final = 4
"""Threads for tables that are worked on in parallel, each of which has those for its files."""


class CrashPoint(StrEnum):
    """A named place where a crash leaves something half-done; each says what is on disk at that moment."""

    DATA_FILE_OPENED = "data-file-opened"
    """An empty data file exists; no manifest names it."""

    DATA_FILE_CLOSED = "data-file-closed"
    """A data file is complete and synced; no manifest names it."""

    WRITE_BEFORE_SPILL = "write-before-spill"
    """Rows are in memory; the scratch disk holds earlier runs at most."""

    WRITE_SPILLED = "write-spilled"
    """Rows are a run on scratch disk; no file of the table was made of them."""

    CHANGELOG_WRITTEN = "changelog-written"
    """Changelog files of a flush or a compaction are complete; neither they nor its data files are in a manifest."""

    WRITE_FLUSHED = "write-flushed"
    """Rows are complete data files that no manifest names."""

    WRITE_NUMBERED = "write-numbered"
    """Rows are in two data files, with the numbers they had and with larger ones; no manifest names either."""

    COMPACT_BEFORE_OUTPUT = "compact-before-output"
    """A compaction is planned; nothing of it is written."""

    COMPACT_OUTPUT_WRITTEN = "compact-output-written"
    """The outputs of a round are complete; neither they nor the removal of its inputs are in a manifest."""

    WRITE_PREPARED = "write-prepared"
    """Everything for the commit messages of a writer is on disk; the messages were not sent yet."""

    COMMIT_MANIFESTS_WRITTEN = "commit-manifests-written"
    """Manifests and manifest lists of the next snapshot are on disk; no snapshot names them."""

    COMMIT_SNAPSHOT_CREATED = "commit-snapshot-created"
    """The snapshot is visible; the LATEST hint still names the one before."""

    COMMIT_BEFORE_COMPACT = "commit-before-compact"
    """The APPEND snapshot is visible; the COMPACT snapshot of the same identifier is not there."""

    EDIT_WRITTEN = "edit-written"
    """The files of a delete or an update are complete; neither they nor what they replace are in a manifest."""

    CUT_HINTED = "cut-hinted"
    """A rollback that removes snapshots has written the LATEST hint; all snapshots are there."""

    CUT_SNAPSHOTS_REMOVED = "cut-snapshots-removed"
    """The snapshots after the one that is rolled back to are gone; changelogs and tags of them are there."""

    BRANCH_MARKED = "branch-marked"
    """The folder of a branch has a marker, and nothing else yet."""

    BRANCH_COPIED = "branch-copied"
    """A branch is complete but for its marker, which is still there."""

    BRANCH_DROP_MARKED = "branch-drop-marked"
    """A branch that is dropped is still complete, and has a marker."""

    BRANCH_SCHEMAS_REMOVED = "branch-schemas-removed"
    """The schemas of a branch that is dropped are gone, its snapshots are still there."""

    TABLE_ROW_RENAMED = "table-row-renamed"
    """The rows of a catalog in a database have the new name of a table; its folder has the old one."""

    TABLE_ROW_REMOVED = "table-row-removed"
    """The rows of a table, or of a database, are gone from a catalog in a database; the files are all there."""

    TABLE_SCHEMAS_REMOVED = "table-schemas-removed"
    """The schemas of a table that is dropped are gone: it is no table any more. The rest is there."""

    PARTITIONS_REMOVED = "partitions-removed"
    """The snapshot that takes a batch of expired partitions away is visible; those of later batches are not there."""

    EXPIRE_PLANNED = "expire-planned"
    """Nothing is deleted yet."""

    EXPIRE_HISTORY_KEPT = "expire-history-kept"
    """What snapshots that are about to expire say of their commits is in the history too; they are still there."""

    HISTORY_JOINED = "history-joined"
    """Commits of a day are in one file of the history, and in the files that it was made of."""

    EXPIRE_CHANGELOGS_KEPT = "expire-changelogs-kept"
    """Snapshots that are about to expire have copies among the changelogs; they are still there themselves."""

    EXPIRE_SNAPSHOTS_REMOVED = "expire-snapshots-removed"
    """Expired snapshot files are gone, what only they named is still there."""

    EXPIRE_DATA_REMOVED = "expire-data-removed"
    """Data and changelog files of expired snapshots are gone, their manifests are still there."""

    TAG_WRITTEN = "tag-written"
    """A tag is there; nobody has looked yet whether its snapshot still is."""

    TAG_REMOVED = "tag-removed"
    """A tag is gone, what only it named is still there."""


class Env:
    """The real world. Tests replace single methods in a subclass."""

    checks_claims: bool = os.environ.get(CHECK_CLAIMS) == "1"
    """Whether each commit is checked against the invariants before its claim, as tests have it."""

    def __init__(
        self,
        file_io: FileIO,
        scratch_root: str | None = None,
        *,
        settings: EnvSettings | None = None,
        cache: CacheSettings | None = None,
        local_dirs: Sequence[str] = (),
    ) -> None:
        """`settings` are what `open_env` makes the same world of, in another process; None: there is no other.
        `cache`: what is kept on the local disk of files that never change. `local_dirs`: folders of the local disk in
        which a table's own options may have scratch files and caches put, besides those of `FRESHET_LOCAL_DIRS`.
        """
        self.file_io = file_io
        self.settings = settings
        in_flight = file_io.read_costs.in_flight
        self.reads: StoreReads | None = StoreReads(in_flight) if in_flight > 1 else None
        """Requests to a store at which each takes its time; None for a disk, and for memory."""
        self.file_cache: FileCache | None = None
        if cache is not None:
            files = LocalCache(cache.folder or scratch_root, FOLDER)
            self.file_cache = FileCache(files, cache, _store_text(settings), self.now_ms)
        self._scratch_root = scratch_root
        self._local_dirs = tuple(local_dirs)
        self._scratch = ScratchFolders(scratch_root)
        self._background = Background()
        self._gradual = GradualWork()
        self._helpers = Helpers(max(HELPERS_MIN, in_flight))
        self._for_tables = Helpers(FOR_TABLES)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> Never:
        raise InvalidRequestError("an Env stays in its process; send a table, which is opened again with its settings")

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def creation_time_ms(self) -> int:
        """The local wall clock as if it were UTC: what `_CREATION_TIME` of a file entry holds (FORMAT.md §4.2)."""
        return self.wall_clock_ms(self.now_ms())

    def wall_clock_ms(self, time_ms: int) -> int:
        """A moment as the local wall clock shows it, as if that were UTC."""
        return time_ms + time.localtime(time_ms / 1000).tm_gmtoff * 1000

    def time_zone(self) -> str:
        """Name of the machine's time zone, as a JVM that runs here takes it."""
        return _time_zone()

    def machine_start(self) -> str:
        """A text that is another one whenever the machine was started again; empty where none is known."""
        return _machine_start()

    def new_uuid(self) -> str:
        """A random id in its dashed form."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        """A random number in [0, 1), to spread retries."""
        return random.random()

    def sleep_s(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    def reach(self, point: CrashPoint) -> None:
        """Says that the program is at a named point; here nothing happens, in a simulation it may end."""

    @property
    def is_remote(self) -> bool:
        """True where each call for a file is a request to a store, which takes its time."""
        return self.reads is not None

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Makes calls for files in parallel, none of which makes others this way; their results, in order.

        All have ended when this returns or raises the first error.
        """
        return self._helpers.together(calls)

    def for_tables(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Makes calls for several tables in parallel, which may make others by `together` and `looks`.

        All have ended when this returns or raises the first error.
        """
        return self._for_tables.together(calls)

    def looks(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The same for short reads: on a disk, where a thread costs more than they do, one after the other."""
        return [call() for call in calls] if self.reads is None else self.reads.together(calls)

    def run_later(self, name: str, work: Callable[[], None]) -> None:
        """Does work in the background, one task after the other; it replaces what is queued under this name already.

        It is done at the latest when the program ends, unless that is killed. The work handles its own errors.
        """
        self._background.run(name, work)

    def finish_later(self) -> None:
        """Waits until everything given to `run_later` is done."""
        self._background.finish()

    def run_gradually(self, name: str, steps: Callable[[], Iterator[None]]) -> None:
        """Does work step by step in a thread of its own, unless work of this name is under way: that goes on then.

        It is given up when the program ends. The work handles its own errors.
        """
        self._gradual.run(name, steps)

    def finish_gradual(self) -> None:
        """Waits until all that was given to `run_gradually` is done."""
        self._gradual.finish()

    def create(self, path: str, data: bytes) -> bool:
        """Creates a file of unique content, as `create_or_ask`."""
        return create_or_ask(self.file_io, path, data)

    def immutable_bytes(self, path: str, kind: CacheKind = CacheKind.META) -> bytes:
        """All bytes of a file of metadata that never changes under its name: requested ahead (`coming_bytes`), kept
        locally, or read now."""
        coming = None if self.reads is None else self.reads.take(path)
        return self._kept_or_read(path, kind) if coming is None else bytes(coming.result())

    def coming_bytes(self, path: str, size_bytes: int | None, kind: CacheKind = CacheKind.META) -> ComingRead:
        """The same as a request that a reader is going to make."""
        return ComingRead(path, size_bytes or 0, partial(self._kept_or_read, path, kind))

    def without_cache(self) -> Self:
        """The same world, of which nothing that is kept locally is read."""
        if self.file_cache is None:
            return self
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__, file_cache=None)
        return same

    def forget_immutable(self, path: str, kind: CacheKind = CacheKind.META) -> None:
        """Drops what is kept of a file whose bytes turned out to be wrong: it may be restored under its name."""
        if self.file_cache is not None:
            self.file_cache.drop(kind, path)

    def _kept_or_read(self, path: str, kind: CacheKind) -> bytes:
        kept = None if self.file_cache is None else self.file_cache.get(kind, path)
        if kept is not None:
            return bytes(kept)
        data = self.file_io.read_bytes(path)
        if self.file_cache is not None:
            self.file_cache.put(kind, path, data)
        return data

    def scratch_folder(self) -> str:
        """A new empty folder on a local disk for spilled data; the caller removes it with `release_scratch`.

        Folders that dead processes have left are removed on the way.
        """
        return self._scratch.new()

    def release_scratch(self, folder: str) -> None:
        """Removes a folder given by `scratch_folder`, with all in it."""
        self._scratch.release(folder)

    def local_cache(self, folder: CacheFolder, parent: str | None = None) -> LocalCache:
        """Immutable files on a local disk that the processes of this user share; nothing depends on them.

        They lie in a folder of this name below `parent`, else next to the scratch folders.
        """
        return LocalCache(parent or self._scratch_root, folder)

    def allows_local_dir(self, path: str) -> bool:
        """Whether a table's own options may name this folder of the local disk."""
        return _is_within(path, (*self._local_dirs, *os.environ.get(LOCAL_DIRS, "").split(os.pathsep)))

    def sweep_scratch(self) -> list[str]:
        """Removes scratch folders of dead processes on this machine, and returns their paths."""
        return self._scratch.sweep()


def local_env(scratch_root: str | None = None) -> Env:
    """The environment of a program that works on local or mounted disks."""
    return open_env("/", EnvSettings(scratch_root=scratch_root))


def open_env(location: str, settings: EnvSettings | Mapping[str, str] = EnvSettings()) -> Env:  # noqa: B008 - frozen
    """An environment that reaches this location, and all others of its store; options alone are settings too."""
    settings = settings if isinstance(settings, EnvSettings) else EnvSettings.of(settings)
    of_cache = resolved_options(settings, (CACHE_OPTIONS,))
    of_store = resolved_options(settings, store_options(location))
    file_io = open_file_io(location, {key: text for key, text in of_store.items() if key not in of_cache})
    cache = cache_settings(of_cache, is_on=file_io.read_costs.in_flight > 1)
    return Env(file_io, settings.scratch_root, settings=None if is_of_this_process(location) else settings, cache=cache)


def _store_text(settings: EnvSettings | None) -> str:
    """What distinguishes two stores with files of one path: their endpoints."""
    return ",".join(text for key, text in (settings.catalog if settings else ()) if key.endswith("endpoint"))


def resolved_options(settings: EnvSettings, keys: Sequence[str]) -> Mapping[str, str]:
    """The options among these keys; `env:NAME` is the variable of this process. Not to be shown or kept."""
    return settings.resolved(keys, os.environ)


def process_environment() -> Mapping[str, str]:
    """The environment variables of this process."""
    return os.environ


def process_env(location: str, settings: EnvSettings) -> Env:
    """The environment for tables that come from other processes: one for each store and settings, and after a fork."""
    return _process_env(os.getpid(), store_of(location), settings)


def store_env(location: str, options: Mapping[str, str]) -> Env:
    """The same for files that belong to no table, of the options of their store."""
    return process_env(location, EnvSettings.of(options))


@lru_cache(ENVS_MAX)
def _process_env(process_id: int, store: str, settings: EnvSettings) -> Env:
    return open_env(store, settings)


@lru_cache(ENVS_MAX)
def _is_within(path: str, folders: tuple[str, ...]) -> bool:
    real = os.path.realpath(path)
    roots = (os.path.realpath(os.path.expanduser(each)) for each in folders if each)
    return any(os.path.commonpath((real, root)) == root for root in roots)


def _time_zone() -> str:
    """The variable TZ, else what /etc/localtime leads to; UTC where neither says a name."""
    given = os.environ.get("TZ", "").removeprefix(":")
    _, _, name = (given or os.path.realpath("/etc/localtime")).rpartition("zoneinfo/")
    return name if name and not name.startswith("/") else "UTC"


@lru_cache(1)
def _machine_start() -> str:
    """Linux alone has one."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def absolute_path(location: str) -> str:
    """A path, or a `file:` URI of one, that does not begin at the root: against the current folder, `~` against the
    home folder. Any other location is left as it is, and blank text is.

    Raises `InvalidRequestError` where there is no such home folder, or the current folder is gone.
    """
    path = location
    if scheme := _SCHEME.match(location):
        if scheme[0].lower() != "file:":
            return location
        path = unquote(location[scheme.end() :])
    if path.startswith("/") or not path.strip():
        return location
    try:
        found = os.path.abspath(os.path.expanduser(path))
    except OSError as error:
        raise InvalidRequestError(f"{location!r} cannot be taken against the current folder: {error}") from error
    if path.startswith("~") and os.path.expanduser(path) == path:
        raise InvalidRequestError(f"{location!r}: there is no such home folder; give an absolute path")
    return found


def is_local_folder(path: str) -> bool:
    """Whether there is a folder of this path on the local disk."""
    return os.path.isdir(path)
