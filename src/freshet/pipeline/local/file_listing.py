r"""The files that a source finds, as Spark's does.

Those of a folder, or of each that a pattern stands for; with `recursiveFileLookup` those of all folders below. Where
folders are partitions (`day=1/`) theirs are found as well; they must be alike. Not found are names that begin with `_`
or `.` (but for those with `=` in them, `_metadata` and `_common_metadata`) or end with `._COPYING_`, and what lies in
folders of such names; the folders of `path` may have any.

Patterns of paths are Hadoop's: `*`, `?`, `[a-b]`, `[^a]`, `{a,b}`, and `\` before a character that is meant.

Source: Spark's `InMemoryFileIndex`, `PartitioningUtils`, Hadoop's `GlobPattern` and `GlobExpander`; tried. Other than
in Spark, files beside partition folders are not only written into the log, but read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from freshet._frozen import Frozen
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.query.wire.file_uris import place_of, uri_of
from freshet.storage.io.env import Env

_SHOWN: Final = ("_metadata", "_common_metadata")
_ALL_S: Final = 60.0
_ALL_SHARE: Final = 100
"""All files are looked at again after so many times what it takes, but for once a minute."""
_SETTLED_NS: Final = 2_000_000_000
"""So long after a folder was changed, another change gives it another time of modification, on any disk."""
_MAGIC: Final = re.compile(r"[{}\[\]*?\\]")
_ESCAPED: Final = frozenset(".$()|+")


class FoundFile(NamedTuple):
    """A file that is there."""

    uri: str
    size: int
    modified_ms: int


class _Entry(NamedTuple):
    name: str
    path: str
    size: int
    modified_ms: int
    is_folder: bool


class Where(Frozen):
    """What a source looks for: a path or pattern, absolute or with a scheme; a pattern of names; whether in all folders
    below."""

    path: str
    names: str | None = None
    is_deep: bool = False


class _Folder(NamedTuple):
    """What lies in a folder."""

    files: list[_Entry]
    folders: list[_Entry]
    is_known: bool
    """It has files that are left out."""


class FileListing:
    """The files of one source, listed again and again.

    Of a local disk, files that were read already are left out by their name alone, until all are looked at again: for
    Spark a file is another one once it was forgotten (`maxFileAge`) and is newer. Measured, 100,000 files: 1.9 s of
    processor time for all, 0.09 s without those that were read.
    """

    def __init__(self, env: Env, where: Where) -> None:
        self._env, self._where = env, where
        self._is_local = "://" not in where.path
        self._folders: dict[str, int] = {}
        self._known: dict[str, set[str]] = {}
        self._all_at_s = 0.0
        self.took_s = 0.0
        """Processor time of the last listing."""

    def files(self) -> list[FoundFile]:
        """All files, in no order that is promised, but for some that were read."""
        begun_s, begun, self._folders = time.thread_time(), time.monotonic(), {}
        if begun >= self._all_at_s:
            self._known = {}
        roots, found, leaves = self._roots(), dict[str, list[FoundFile]](), set[str]()
        for root in roots:
            for folder, there in self._below(root.path) if root.is_folder else [_only(root)]:
                of_folder = [_found(each) for each in there.files if self._is_wanted(each.name)]
                found.setdefault(folder, []).extend(of_folder)
                leaves.update([folder] if of_folder or there.is_known else [])
        bases = {root.path if root.is_folder else _parent(root.path) for root in roots}
        if not self._where.is_deep and not has_partitions(sorted(leaves), bases, self._where.path):
            found = {folder: files for folder, files in found.items() if folder in bases}
        self.took_s = time.thread_time() - begun_s
        if begun >= self._all_at_s:
            self._all_at_s = begun + max(_ALL_S, self.took_s * _ALL_SHARE)
        return list({each.uri: each for files in found.values() for each in files}.values())

    def leave_out(self, files: Iterable[FoundFile]) -> None:
        """Files that are read need not be found again."""
        for each in files if self._is_local else ():
            folder, _, name = place_of(each.uri).rpartition("/")
            self._known.setdefault(folder or "/", set()).add(name)

    def can_be_read(self, file: FoundFile) -> bool:
        """Whether it is a file: whoever opens a pipe waits for a writer."""
        return not self._is_local or os.path.isfile(place_of(file.uri))

    def may_have_changed(self) -> bool:
        """Whether a listing may find other files than the last one: of a store, always."""
        if not self._is_local or not self._folders:
            return True
        return any(_changed_ns(folder) != changed for folder, changed in self._folders.items())

    def _is_wanted(self, name: str) -> bool:
        return not _is_hidden(name) and (self._where.names is None or matches(self._where.names, name))

    def _roots(self) -> list[_Entry]:
        path = self._where.path
        if not is_pattern(path):
            return self._file(path) if self._is_local and os.path.isfile(path) else [_folder(path)]
        found: dict[str, _Entry] = {}
        for pattern in spelled_out(path):
            head, parts = _divided(pattern)
            found.update({each.path: each for each in self._matched(head, parts)})
        return list(found.values())

    def _file(self, path: str) -> list[_Entry]:
        return [each for each in self._there(_parent(path)).files if each.path == path]

    def _matched(self, folder: str, parts: Sequence[str]) -> Iterator[_Entry]:
        """What lies below a folder under names that the parts of a pattern stand for."""
        if not parts:
            yield _folder(folder)
            return
        name, rest = plain_name(parts[0]), parts[1:]
        if name is not None and rest:
            yield from self._matched(_joined(folder, name), rest)
            return
        there = self._there(folder)
        for each in (*there.folders, *(() if rest else there.files)):
            if each.name == name or (name is None and matches(parts[0], each.name)):
                if rest:
                    yield from self._matched(each.path, rest)
                else:
                    yield each

    def _below(self, root: str) -> Iterator[tuple[str, _Folder]]:
        """The folders below one, and itself, with their files."""
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            there = self._there(folder)
            yield folder, there
            waiting += [each.path for each in there.folders if not _is_hidden(each.name)]

    def _there(self, folder: str) -> _Folder:
        there = _Folder([], [], False)
        if self._is_local:
            changed, now = _changed_ns(folder), time.time_ns()
            self._folders[folder] = changed if changed + _SETTLED_NS < now else -1
            known = self._known.get(folder)
            unknown = _unknown(folder, known) if known else None
            if unknown is not None:
                return unknown
        for each in self._env.file_io.entries(folder):
            entry = _Entry(each.name, each.path, each.size_bytes, each.modified_ms, each.is_folder)
            (there.folders if each.is_folder else there.files).append(entry)
        return there


def has_partitions(folders: Sequence[str], bases: set[str], path: str) -> bool:
    """Whether folders with files in them are partitions of `bases`. Raises `ConfigurationError` where some are and
    others are not, or not of the same columns."""
    found = {folder: _partition(folder, bases) for folder in folders}
    layouts = {(tuple(name.lower() for name in columns), base) for columns, base in found.values() if columns}
    if not layouts:
        return False
    beside = [folder for folder, (columns, _) in found.items() if not columns and folder not in bases]
    if len(layouts) > 1 or beside:
        shown = ", ".join(sorted([*beside, *(folder for folder, (columns, _) in found.items() if columns)])[:3])
        raise ConfigurationError(
            f"the folders of {path} are not partitions of one kind ({shown}): move those that are others away, give "
            'their pattern as path, or set recursiveFileLookup to "true", which reads all of them'
        )
    return True


def _partition(folder: str, bases: set[str]) -> tuple[tuple[str, ...], str]:
    """The columns that the names of a folder and of those above it say, and the folder in which they lie."""
    columns: list[str] = []
    while folder not in bases and folder.strip("/"):
        name, separator, _ = folder.rpartition("/")[2].partition("=")
        if separator and name:
            columns.append(name)
        elif columns:
            break
        folder = _parent(folder)
    return tuple(reversed(columns)), folder


def _is_hidden(name: str) -> bool:
    if name.startswith(_SHOWN):
        return False
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _only(file: _Entry) -> tuple[str, _Folder]:
    return _parent(file.path), _Folder([file], [], False)


def _unknown(folder: str, known: set[str]) -> _Folder | None:
    """What lies in a folder of a local disk but for files of these names; None where that is not to be seen."""
    there, is_known = _Folder([], [], True), False
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in known:
                    is_known = True
                    continue
                try:
                    is_folder, status = entry.is_dir(), entry.stat()
                except FileNotFoundError:  # a link to nowhere, or just gone
                    continue
                found = _Entry(entry.name, entry.path, status.st_size, status.st_mtime_ns // 1_000_000, is_folder)
                (there.folders if is_folder else there.files).append(found)
    except OSError:  # whoever lists all of them says it better
        return None
    return there._replace(is_known=is_known)


def _found(entry: _Entry) -> FoundFile:
    return FoundFile(uri_of(entry.path), entry.size, entry.modified_ms)


def _folder(path: str) -> _Entry:
    return _Entry(path.rpartition("/")[2], path, 0, 0, True)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def _divided(pattern: str) -> tuple[str, list[str]]:
    """The folder before the first part that stands for several names, and the parts from there."""
    scheme, separator, rest = pattern.rpartition("://")
    parts = (rest if separator else pattern).strip("/").split("/")
    head = f"{scheme}://{parts.pop(0)}" if separator else "/"
    return head, parts


def is_pattern(path: str) -> bool:
    """Whether a path is taken for a pattern."""
    return _MAGIC.search(path) is not None


def plain_name(part: str) -> str | None:
    """The only name that a part of a pattern may stand for, None where there are several."""
    return None if re.search(r"[{}\[\]*?]", re.sub(r"\\.", "", part)) else re.sub(r"\\(.)", r"\1", part)


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one of a pattern. Raises `ValueError` for a pattern that is none."""
    return _compiled(pattern).fullmatch(name) is not None


def spelled_out(pattern: str) -> list[str]:
    """Patterns in whose braces there is no slash, which together say the same."""
    begin, depth = -1, 0
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif character == "{":
            if not depth:
                begin, start, parts = at, at + 1, []
            depth += 1
        elif character == "," and depth == 1:
            parts.append(pattern[start:at])
            start = at + 1
        elif character == "}" and depth:
            depth -= 1
            if not depth and "/" in pattern[begin:at]:
                parts.append(pattern[start:at])
                found = (f"{pattern[:begin]}{each}{pattern[at + 1 :]}" for each in parts)
                return [each for one in found for each in spelled_out(one)]
        at += 1
    return [pattern]


@lru_cache(64)
def _compiled(pattern: str) -> re.Pattern[str]:
    found, braces, is_set, at = [], 0, False, 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
            found.append(re.escape(pattern[at : at + 1]))
        elif character in _ESCAPED or (character == "^" and not is_set):
            found.append(f"\\{character}")
        elif character == "*" and not is_set:
            found.append(".*")
        elif character == "?" and not is_set:
            found.append(".")
        elif character == "{" and not is_set:
            found.append("(?:")
            braces += 1
        elif character == "," and braces and not is_set:
            found.append("|")
        elif character == "}" and braces and not is_set:
            found.append(")")
            braces -= 1
        elif character == "!" and is_set and pattern[at - 1] == "[":
            found.append("^")
        else:
            is_set = character == "[" or (is_set and character != "]")
            found.append(character)
        at += 1
    try:
        return re.compile("".join(found), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{pattern} is no pattern: {error}") from error
