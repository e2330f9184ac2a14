"""Snapshots that have expired: their changelogs, which outlive them, and what they said of their commits, the history.

    changelog/changelog-<N>     the content of snapshot-<N>; its changelog files (without a changelog producer: the data
                                files it added) are still there, what else it names may be gone
    changelog/LATEST, EARLIEST  hints, as for snapshots: missing or low ones do no harm

    freshet/history/commits-<day>-<first>-<last>-<hash>.json.gz

A line of a file of the history is a snapshot as its file was, less the names of what is gone and all properties but the
facts of its commit (`codec.commit_facts`). Expiry writes a file, named after its content, before it removes snapshots,
and joins the small files of a day (by UTC) into one every `JOIN_EVERY` snapshots. No file is ever changed: of two
programs that join the same ones both outcomes stay, and readers count a commit once whichever files name it. So a crash
leaves nothing to mend, and loses no fact.

Files of days past `freshet.history-retained` go, and the oldest beyond `HISTORY_BYTES_MAX`, which are some 150,000
commits. No other program knows the folder: Apache Paimon's orphan cleaning looks for files in `manifest/`, `index/`,
`statistics/` and bucket folders.

Source of changelogs: FORMAT.md §12.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import orjson

from freshet._frozen import Frozen
from freshet.storage.codec.commit_facts import FACTS_PROPERTY
from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot, snapshot_content
from freshet.storage.exceptions import CorruptDataError, NotFoundError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.file_io import FileStatus, numbered_files
from freshet.storage.io.removal import Removal
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import CHANGELOG_PREFIX, TablePaths


class ChangelogStore:
    """The long-lived changelogs of one table (or branch). Holds nothing in memory."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths

    def find(self, snapshot_id: int) -> Snapshot | None:
        """The copy of a snapshot, or None when none was kept."""
        path = self._paths.changelog(snapshot_id)
        try:
            return decode_snapshot(self._env.file_io.read_bytes(path), path)
        except NotFoundError:
            return None

    def list_ids(self) -> list[int]:
        """Ids of all copies, ascending."""
        return list(numbered_files(self._env.file_io, self._paths.changelog_folder, CHANGELOG_PREFIX))

    def all(self) -> dict[int, Snapshot]:
        """All copies by id."""
        found = {snapshot_id: self.find(snapshot_id) for snapshot_id in self.list_ids()}
        return {snapshot_id: snapshot for snapshot_id, snapshot in found.items() if snapshot is not None}

    def keep(self, snapshot: Snapshot) -> None:
        """Writes the copy of a snapshot that is about to expire; a copy that is there already is replaced by itself."""
        self._env.file_io.overwrite(self._paths.changelog(snapshot.id), encode_snapshot(snapshot))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Says which copy is the newest; only after it is there."""
        self._env.file_io.overwrite(self._paths.changelog_latest_hint, str(snapshot_id).encode(), sync=False)

    def remove_hints(self) -> None:
        """Removes the hints, of a table without copies."""
        hints = [self._paths.changelog_latest_hint, self._paths.changelog_earliest_hint]
        Removal(self._env.file_io, self._paths.location).delete_all(hints)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Says which copy is the oldest."""
        self._env.file_io.overwrite(self._paths.changelog_earliest_hint, str(snapshot_id).encode(), sync=False)


JOIN_EVERY: Final = 32
"""Snapshots after which files are joined, and old ones removed: each time a listing."""
JOINED_BYTES_MAX: Final = 256 * 1024
"""Larger files are left as they are: a day of many commits has several."""
LISTINGS_MAX: Final = 5
HISTORY_BYTES_MAX: Final = 16 * 1024 * 1024

_NAME: Final = re.compile(r"commits-(\d{8})-(\d+)-(\d+)-[0-9a-f]{16}\.json\.gz")
_GONE: Final = "gone"


class _HistoryFile(Frozen):
    day: str
    first_id: int
    last_id: int
    status: FileStatus


class HistoryStore:
    """The history of one table, or of one branch."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths

    def keep(self, snapshots: Iterable[Snapshot]) -> None:
        """Notes snapshots that are about to go: a file for each day, durable when this returns."""
        days: dict[str, list[Snapshot]] = {}
        for snapshot in snapshots:
            days.setdefault(_day(snapshot.time_ms), []).append(snapshot)
        for day, each in days.items():
            self._write(day, each)

    def tidy(self, retained_ms: int) -> None:
        """Removes what is too old or too much, and joins the small files of each day."""
        files = self._files()
        gone = _doomed(files, _day(self._env.now_ms() - retained_ms))
        self._delete(file.status.path for file in gone)
        days: dict[str, list[FileStatus]] = {}
        for file in files:
            if file not in gone and file.status.size_bytes < JOINED_BYTES_MAX:
                days.setdefault(file.day, []).append(file.status)
        for day, small in days.items():
            if len(small) > 1:
                self._join(day, small)

    def snapshots(self, *, since_ms: int = 0) -> list[Snapshot]:
        """Every snapshot that was noted, of the day of that time and later, each once, the oldest first; where files
        are joined meanwhile they are listed again."""
        return self._found(lambda file: file.day >= _day(since_ms))

    def newest(self, snapshot_id: int) -> Snapshot | None:
        """The last snapshot of this id that was noted: a table that was cut gives ids a second time. None where it is
        there still, or another program has expired it."""
        found = self._found(lambda file: file.first_id <= snapshot_id <= file.last_id)
        return next((snapshot for snapshot in reversed(found) if snapshot.id == snapshot_id), None)

    def _found(self, is_asked: Callable[[_HistoryFile], bool]) -> list[Snapshot]:
        for attempt in range(LISTINGS_MAX):
            files = [file.status for file in self._files() if is_asked(file)]
            with suppress(NotFoundError):
                return _each_once(self._read(files, skip_missing=attempt == LISTINGS_MAX - 1))
        raise AssertionError("the last attempt skips what is missing")

    def _join(self, day: str, files: Sequence[FileStatus]) -> None:
        try:
            found = _each_once(self._read(files, skip_missing=False))
        except NotFoundError:
            return  # another program has joined them
        written = self._write(day, found)
        self._env.reach(CrashPoint.HISTORY_JOINED)
        self._delete(file.path for file in files if file.path != written)

    def _write(self, day: str, snapshots: Sequence[Snapshot]) -> str:
        ids = [snapshot.id for snapshot in snapshots]
        lines = b"".join(orjson.dumps(_kept(snapshot)) + b"\n" for snapshot in snapshots)
        content = hashlib.sha256(lines).hexdigest()[:16]
        path = f"{self._paths.history_folder}/commits-{day}-{min(ids)}-{max(ids)}-{content}.json.gz"
        self._env.file_io.overwrite(path, gzip.compress(lines, mtime=0))
        return path

    def _files(self) -> list[_HistoryFile]:
        found = self._env.file_io.entries(self._paths.history_folder)
        named = [(_NAME.fullmatch(status.name), status) for status in found if not status.is_folder]
        return sorted(
            (
                _HistoryFile(match[1], int(match[2]), int(match[3]), status)
                for match, status in named
                if match is not None
            ),
            key=lambda file: (file.day, file.first_id, file.status.name),
        )

    def _read(self, files: Sequence[FileStatus], *, skip_missing: bool) -> list[Snapshot]:
        found = self._env.looks([partial(self._lines, file.path, skip_missing=skip_missing) for file in files])
        return [snapshot for each in found for snapshot in each]

    def _lines(self, path: str, *, skip_missing: bool) -> list[Snapshot]:
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError:
            if skip_missing:
                return []
            raise
        try:
            return [decode_snapshot(line, path) for line in gzip.decompress(data).splitlines()]
        except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
            raise CorruptDataError(
                f"the history of commits is damaged ({error}); remove the file: nothing but $commits, $compactions "
                "and status reads it",
                path=path,
            ) from error

    def _delete(self, paths: Iterable[str]) -> None:
        Removal(self._env.file_io, self._paths.location).delete_all(list(paths))


def _doomed(files: Sequence[_HistoryFile], first_day: str) -> list[_HistoryFile]:
    """Files before a day, and the oldest of those that are too much together."""
    doomed, size_bytes = [], 0
    for file in reversed(files):
        size_bytes += file.status.size_bytes
        if file.day < first_day or size_bytes > HISTORY_BYTES_MAX:
            doomed.append(file)
    return doomed


def _day(time_ms: int) -> str:
    return time.strftime("%Y%m%d", time.gmtime(time_ms // 1000))


def _kept(snapshot: Snapshot) -> dict[str, object]:
    """What is kept of a snapshot; the name of its delta tells apart snapshots of one id."""
    properties = snapshot.properties or {}
    facts = {FACTS_PROPERTY: properties[FACTS_PROPERTY]} if FACTS_PROPERTY in properties else None
    less = replace(
        snapshot,
        base_manifest_list=_GONE,
        base_manifest_list_size=None,
        delta_manifest_list_size=None,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        index_manifest=None,
        statistics=None,
        properties=facts,
    )
    return snapshot_content(less)


def _each_once(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    by_key = {(snapshot.id, snapshot.delta_manifest_list): snapshot for snapshot in snapshots}
    return sorted(by_key.values(), key=lambda snapshot: (snapshot.id, snapshot.time_ms))


def with_history(history: Iterable[Snapshot], live: Iterable[Snapshot]) -> list[tuple[Snapshot, bool]]:
    """All commits, the oldest first, each once, and whether its snapshot has expired."""
    there = {(snapshot.id, snapshot.delta_manifest_list): (snapshot, False) for snapshot in live}
    gone = {(snapshot.id, snapshot.delta_manifest_list): (snapshot, True) for snapshot in history}
    return sorted((gone | there).values(), key=lambda item: (item[0].id, item[0].time_ms))
