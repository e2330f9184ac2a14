"""Folders of one pipeline file that must lie apart: what one part writes there, another would read or remove.

| folder | must not be in, or hold |
|---|---|
| the checkpoint | the folder of the table: its care removes files that no snapshot names |
| `files.path` of a source | the checkpoint or the table; nor, read recursively, hold them: they would be read |
| `sourceArchiveDir` of a source | its `files.path`: what was archived would be read again |

Paths of one store are compared: those of local disks, or of a bucket (`s3a://` is `s3://`).
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlparse

from freshet.pipeline.config.catalogs import target_location
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.exceptions import Problem
from freshet.storage.catalog import split_branch

ARCHIVE_OPTION: Final = "sourceArchiveDir"
_RECURSIVE: Final = "recursiveFileLookup"
_SAME: Final = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}
"""Schemes of one store."""


def entangled_folders(config: PipelineConfig) -> Iterator[Problem]:
    """The folders that do not lie apart, with their keys in the file."""
    checkpoint, warehouse = _folder(config.checkpoint), _folder(target_location(config))
    database, _, name = split_branch(config.table.name)[0].partition(".")
    table = None if warehouse is None else warehouse / f"{database}.db" / name
    if _touch(checkpoint, table):
        yield Problem(
            ("checkpoint",), f"lies in or around the folder of the table ({_shown(table)}); choose another folder"
        )
    for index, source in enumerate(config.sources):
        if source.files is None:
            continue
        key_path = ("sources", index, "files")
        path = _folder(source.files.path, is_pattern=True)
        # Spark reads the files of the folder itself; what else a pattern may match is not known.
        is_pattern = glob.has_magic(source.files.path)
        is_deep = source.files.options.get(_RECURSIVE, "").lower() == "true" and not is_pattern
        touches = _touch if is_deep else _is_in
        holds_warehouse = (path == warehouse and not is_pattern) or (is_deep and _is_in(warehouse, path))
        for what, folder in (("checkpoint", checkpoint), ("table", table), ("warehouse", warehouse)):
            if holds_warehouse if what == "warehouse" else touches(path, folder):
                yield Problem(
                    (*key_path, "path"),
                    f"{source.files.path} and the {what} ({_shown(folder)}) lie in one another: its files would be "
                    "read as records; choose another folder",
                )
        archive = source.files.options.get(ARCHIVE_OPTION)
        if archive and _touch(path, _folder(archive)):
            yield Problem(
                (*key_path, ARCHIVE_OPTION),
                f"{archive} and path lie in one another: archived files would be read again",
            )


def _touch(left: PurePosixPath | None, right: PurePosixPath | None) -> bool:
    return _is_in(left, right) or _is_in(right, left)


def _is_in(inner: PurePosixPath | None, outer: PurePosixPath | None) -> bool:
    return inner is not None and outer is not None and inner.is_relative_to(outer)


def _shown(folder: PurePosixPath | None) -> str:
    text = str(folder)
    return text if text.startswith("/") else text.replace(":/", "://", 1)


def _folder(text: str, *, is_pattern: bool = False) -> PurePosixPath | None:
    """The folder, of a pattern up to the first part with a wildcard; below the name of its store where it is not on a
    local disk."""
    parsed = urlparse(text)
    if parsed.scheme not in ("", "file") and not parsed.netloc:
        return None
    parts = PurePosixPath(unquote(parsed.path) if parsed.scheme else text).parts
    wild = (index for index, part in enumerate(parts) if is_pattern and glob.has_magic(part))
    plain = next(wild, len(parts))
    folder = PurePosixPath(*parts[:plain])
    if parsed.scheme in ("", "file"):
        return folder
    return PurePosixPath(f"{_SAME.get(parsed.scheme, parsed.scheme)}:", parsed.netloc, *parts[1:plain])
