"""Files that the metadata of a table places outside of its folder, in a folder that the table declares.

    data-file.external-paths, global-index.external-path    such folders; of any schema: files outlive the option

A path in a manifest may name anything that the process can reach. A file of it is read and removed only where the path
is below a declared folder, or the table's, ends with the name of the file, and goes into no other table, whatever was
declared.

Source: FORMAT.md §1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from freshet.storage.exceptions import CorruptDataError
from freshet.storage.io.env import Env
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.model.manifest import IndexEntry, ManifestEntry
from freshet.storage.paths import BUCKET_PREFIX, TablePaths, scheme_of, store_of, written_location

_DECLARED_BY: Final = ("data-file.external-paths", "global-index.external-path")


class ExternalFiles:
    """The folders outside of one table in which its files may be. `options` are those it was opened with."""

    def __init__(self, env: Env, paths: TablePaths, options: Mapping[str, str], schemas: SchemaStore) -> None:
        self._env = env
        self._paths = paths
        self._schemas = schemas
        self._roots = {paths.location, *_declared(options)}
        self._knows_all = False
        self._own: set[str] = set()
        """Folders that belong to no other table."""

    def check(self, entries: Iterable[ManifestEntry] | Iterable[IndexEntry], source: str) -> None:
        """Raises `CorruptDataError` for an entry of the manifest `source` whose file may not be where it says."""
        for entry in entries:
            if entry.file.external_path is not None:
                self._check(entry.file.external_path, entry.file.file_name, source)

    def _check(self, external_path: str, file_name: str, source: str) -> None:
        path = written_location(external_path)
        folder, _, name = path.rpartition("/")
        parts = folder.removeprefix(store_of(path)).split("/")
        if name != file_name or "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
            raise CorruptDataError(f"the path {external_path!r} is none of file {file_name!r}", path=source)
        if not self._is_declared(path):
            raise CorruptDataError(
                f"{external_path!r} is outside of the table, in no folder that its options declare; if the file is the "
                f"table's, give the folder as option {_DECLARED_BY[0]}",
                path=source,
            )
        other = None if self._is_within(path, {self._paths.location}) else self._other_table(folder)
        if other is not None:
            raise CorruptDataError(f"{external_path!r} is in the folder of another table, {other}", path=source)

    def _is_declared(self, path: str) -> bool:
        if not self._is_within(path, self._roots) and not self._knows_all:
            self._knows_all = True
            for schema_id in self._schemas.list_ids():
                self._roots |= set(_declared(self._schemas.schema(schema_id).options))
        return self._is_within(path, self._roots)

    @staticmethod
    def _is_within(path: str, folders: set[str]) -> bool:
        return any(path.startswith(folder.rstrip("/") + "/") for folder in folders)

    def _other_table(self, folder: str) -> str | None:
        """The table whose folder this is or is in. Asked once of what is above partitions and buckets."""
        if scheme_of(folder) != scheme_of(self._paths.location):
            return None  # in another store, where nothing is opened
        root = store_of(folder)
        parts = folder.removeprefix(root).split("/")
        while parts and (parts[-1].startswith(BUCKET_PREFIX) or "=" in parts[-1]):
            parts.pop()
        for count in range(len(parts), 0, -1):
            above = root + "/".join(parts[:count])
            if above in self._own:
                break
            if self._env.file_io.exists(TablePaths(above).schema(0)):
                return above
            self._own.add(above)
        return None


def _declared(options: Mapping[str, str]) -> Iterator[str]:
    """The folders that options declare."""
    for key in _DECLARED_BY:
        for text in options.get(key, "").split(","):
            if text.strip():
                yield written_location(text.strip()).rstrip("/")
