"""The schema files of a table: immutable, numbered from 0, the latest is the one with the highest number.

A change claims the next number (`catalogs.claims`): of two writers one wins, the other reads again. There is no hint
file; names that are not `schema-<number>` are skipped.

Source: FORMAT.md §2.
"""

from __future__ import annotations

from freshet.storage.codec.metadata_json import decode_schema
from freshet.storage.exceptions import ConflictError, CorruptDataError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import numbered_files
from freshet.storage.model.schema import TableSchema
from freshet.storage.paths import SCHEMA_PREFIX, TablePaths


class SchemaStore:
    """Schemas of one table. Files are read once: they never change."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths
        self._cache: dict[int, TableSchema] = {}
        self._known_versions: dict[int, tuple[str, TableSchema]] = {}
        """Versions of schema files whose bytes were looked at, with what they hold."""
        self._known_bytes: dict[int, tuple[bytes, TableSchema]] = {}
        """Bytes of schema files that were looked at, with what they hold."""

    def list_ids(self) -> list[int]:
        """Ids there are, ascending."""
        return list(numbered_files(self._env.file_io, self._paths.schema_folder, SCHEMA_PREFIX))

    def latest(self) -> TableSchema | None:
        """The newest schema, or None when there is no table."""
        ids = self.list_ids()
        return self.schema(ids[-1]) if ids else None

    def created_ms(self) -> int:
        """When the table was created, in milliseconds since 1970."""
        ids = self.list_ids()
        if not ids:
            raise self._dropped(self._paths.schema_folder)
        return self.schema(ids[0]).time_ms

    def schema(self, schema_id: int) -> TableSchema:
        """One schema; `NotFoundError` when the table has none of this id."""
        cached = self._cache.get(schema_id)
        if cached is not None:
            return cached
        path = self._paths.schema(schema_id)
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError as error:
            if not self.list_ids():
                raise self._dropped(path) from error
            raise NotFoundError(f"the table at {self._paths.home} has no schema {schema_id} ({path})") from error
        schema = decode_schema(data, path)
        if schema.id != schema_id:
            raise CorruptDataError(f"the file holds schema {schema.id}", path=path)
        self._cache[schema_id] = schema
        return schema

    def check_same(self, schema: TableSchema) -> None:
        """Raises when the table that `schema` was read from is not there any more (`NotFoundError`), or is another one
        by now (`ConflictError`); one call, for readers, whom a newer schema does not concern.

        Columns are found by ids, which the next table of the name gives out anew: its rows would look like NULLs.
        """
        path = self._paths.schema(schema.id)
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError as error:
            if self.list_ids():
                raise self._made_anew(f"{path} is gone") from error
            raise self._dropped(path) from error
        if self._known_bytes.get(schema.id) == (data, schema):
            return
        if decode_schema(data, path) != schema:
            raise self._made_anew(f"{path} is another")
        self._known_bytes[schema.id] = (data, schema)

    def _dropped(self, missing: str) -> NotFoundError:
        return NotFoundError(
            f"the table at {self._paths.home} was dropped or renamed while it was open ({missing} is gone)",
            table=self._paths.home,
            path=self._paths.home,
        )

    def _made_anew(self, found: str) -> ConflictError:
        return ConflictError(
            f"the table at {self._paths.home} was dropped and created again while it was open ({found}); open it anew",
            table=self._paths.home,
            path=self._paths.home,
        )

    def check_current(self, schema: TableSchema) -> int:
        """The id of the newest schema; raises when the table that `schema` was read from is not there any more, or is
        another one by now.

        What is written for a table that was dropped would be part of the next one of its name. One listing, unless the
        file of the schema was replaced.
        """
        path = self._paths.schema(schema.id)
        files = numbered_files(self._env.file_io, self._paths.schema_folder, SCHEMA_PREFIX)
        versions = {number: status.version for number, status in files.items()}
        if schema.id in versions and self._known_versions.get(schema.id) == (versions[schema.id], schema):
            return max(versions)
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError as error:
            raise NotFoundError(
                f"the table at {self._paths.home} was dropped or renamed while it was open ({path} is gone); "
                "nothing was committed, open the table again if it is to go on",
                path=self._paths.home,
            ) from error
        if decode_schema(data, path) != schema:
            raise ConflictError(
                f"the table at {self._paths.home} was dropped and created again while it was open ({path} is "
                "another); nothing was committed, open the table again",
                path=self._paths.home,
            )
        if schema.id in versions:
            self._known_versions[schema.id] = (versions[schema.id], schema)
        return max(versions, default=schema.id)
