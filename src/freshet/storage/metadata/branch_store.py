"""The branches of a table: which there are, making one, renaming one, dropping one.

    branch/branch-<name>/schema/…  snapshot/snapshot-<N>  tag/tag-<tag>      copies: of a tag, or of schemas alone
                        /.being-made                                         not whole: it is being made or dropped

Copied schemas say that they were made now: who has an earlier branch of the name open finds another one.

Other programs take the folder for the branch, and write it without an order that a crash would leave whole. Here a
branch is whole when it has a schema and no marker that says otherwise:

| step of making one           | a crash after it leaves                                               |
|------------------------------|-----------------------------------------------------------------------|
| 1 the marker, exclusively    | a marker: of two who make a branch of one name the other is refused   |
| 2 tag, snapshot, schemas     | a half branch, which is neither opened nor listed                     |
| 3 the marker says so, goes   | the branch                                                            |

Renaming is one step: the folder gets another name. A commit that comes after it finds no branch and is refused; who
looks for what branches name while it happens looks again (`SnapshotStore.other_lines`).

Dropping writes the marker first, then removes the schemas, then the rest: what is left of it is no branch and can be
dropped again. A half branch keeps the files that it names from expiry, as a whole one does. What only the branch named
is removed as orphans.

Source: FORMAT.md §12.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Never

from freshet.storage.catalogs.metastore import checked_branch, with_branch
from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot, made_again
from freshet.storage.exceptions import (
    AlreadyExistsError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.file_io import create_or_ask, numbered_files
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.metadata.branch_opening import WHOLE, is_marked
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import answering_callers
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import SCHEMA_PREFIX, TablePaths

READ_WITH: Final = (
    "scan.fallback-branch",
    "scan.fallback-snapshot-branch",
    "scan.fallback-delta-branch",
    "scan.primary-branch",
)
"""Options that name a branch which readers of the table need."""


@answering_callers
class Branches:
    """The branches of one table. Those made from a branch begin with what that one has."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Branches({self._store.name!r})"

    def half_made(self) -> list[str]:
        """Names of those that are being made or dropped, or that an interrupted call has left; sorted."""
        return [name for name in self._store.snapshots.branches() if not self._is_whole(self._paths(name))]

    def list(self) -> list[str]:
        """Names of the branches that are whole, sorted."""
        return [name for name in self._store.snapshots.branches() if self._is_whole(self._paths(name))]

    def create(self, name: str, *, from_tag: str | None = None) -> None:
        """Makes a branch: of the rows that a tag has, or an empty one with the schemas of the table.

        What is written to it is not in the table, nor the reverse. Raises `InvalidRequestError` for a name that no
        branch can have, `AlreadyExistsError` for one that is taken, `NotFoundError` for a tag that is not there.
        """
        store, paths = self._store, self._paths(checked_branch(name))
        store.claims.check_writable()
        store.check_is_there()
        self._check_free(name, paths)
        copies = self._copies(paths, from_tag)
        if not create_or_ask(store.env.file_io, paths.branch_marker, store.env.new_uuid().encode()):
            self._refuse_taken(name)
        with undone_on_failure(lambda: self._undo(paths)):
            if self._is_branch(paths):  # made by another program between the look and the marker, and whole
                store.env.file_io.delete(paths.branch_marker)
                self._refuse_taken(name)
            store.env.reach(CrashPoint.BRANCH_MARKED)
            for path, data in copies.items():
                store.env.file_io.overwrite(path, data)
            store.env.reach(CrashPoint.BRANCH_COPIED)
            self._check_tag_is_there(from_tag, copies, paths)
            store.env.file_io.overwrite(paths.branch_marker, WHOLE)
        with suppress(StorageError):
            store.env.file_io.delete(paths.branch_marker)

    def rename(self, name: str, new_name: str) -> None:
        """Gives a branch another name, at once; its rows, snapshots, tags and consumers stay. Who has it open under the
        old name finds no branch any more, and commits nothing.

        Raises `NotFoundError` where there is none, `AlreadyExistsError` for a name that is taken, `InvalidRequestError`
        for a name that no branch can have and for a branch that is half made, or that readers of the table need,
        `UnsupportedFeatureError` in an object store, which renames files one by one.
        """
        store, target = self._store, self._paths(checked_branch(new_name))
        self._check_changeable(name, "renamed")
        folders = store.env.file_io.folders
        if folders is None:
            raise UnsupportedFeatureError(
                f"branch {name!r} of table {self._table} cannot be renamed: its files lie below its name, and the "
                "store cannot rename them at once. Drop it once its rows are in another branch or table",
                table=self._table,
            )
        paths = self._paths(name)
        if not self._is_whole(paths):
            raise InvalidRequestError(
                f"branch {name!r} of table {self._table} cannot be renamed: it is not whole, for it is being made or "
                "dropped at this moment, or that was interrupted; wait, or drop it",
                table=self._table,
                path=paths.home,
            )
        self._check_free(new_name, target)
        store.env.finish_later()  # an expiry of this process that is under way would write a hint into the folder
        try:
            folders.rename(paths.home, target.home)
        except AlreadyExistsError:
            self._refuse_taken(new_name)

    def check_droppable(self, name: str) -> None:
        """Raises as `drop` does where that would be refused."""
        self._check_changeable(name, "dropped")

    def drop(self, name: str) -> None:
        """Removes a branch, also a half one; what only it named is removed with the orphans of the table.

        Raises `NotFoundError` where there is none, `InvalidRequestError` for one that readers of the table need.
        """
        store = self._store
        self.check_droppable(name)
        paths = self._paths(name)
        store.env.finish_later()  # an expiry of this process that is under way would write a hint into the folder
        if store.removal.way_out(f"{paths.home}/") is None:  # else it goes as a link, or is refused
            store.env.file_io.overwrite(paths.branch_marker, store.env.new_uuid().encode())
            store.env.reach(CrashPoint.BRANCH_DROP_MARKED)
            store.removal.delete_prefix(paths.schema_folder)
            store.env.reach(CrashPoint.BRANCH_SCHEMAS_REMOVED)
        store.removal.delete_prefix(paths.home)

    def fast_forward(self, name: str) -> Never:
        """Not in this release: raises `UnsupportedFeatureError`."""
        raise UnsupportedFeatureError(
            f"table {self._table} is not fast-forwarded to branch {name!r}: that is not in this release, because it "
            "removes snapshots and schemas of the table one by one, and a reader or a crash meanwhile finds a part of "
            "them. Stop all who write and expire the table and call Apache Paimon's fast_forward, or write the rows of "
            "the branch into the table",
            table=self._table,
        )

    @property
    def _table(self) -> str:
        return self._store.name

    def _paths(self, name: str) -> TablePaths:
        return self._store.paths.branch(name)

    def _is_branch(self, paths: TablePaths) -> bool:
        return bool(numbered_files(self._store.env.file_io, paths.schema_folder, SCHEMA_PREFIX))

    def _is_whole(self, paths: TablePaths) -> bool:
        return not is_marked(self._store.env, paths) and self._is_branch(paths)

    def _check_free(self, name: str, paths: TablePaths) -> None:
        if not any(self._store.env.file_io.entries(paths.home)):
            return
        if self._is_whole(paths):
            self._refuse_taken(name)
        raise AlreadyExistsError(
            f"branch {name!r} of table {self._table} cannot be created: a half one is at {paths.home}, which is being "
            "made or dropped at this moment, or was left by an interrupted call; wait, or drop it first",
            table=self._table,
            path=paths.home,
        )

    def _refuse_taken(self, name: str) -> Never:
        raise AlreadyExistsError(
            f"table {self._table} has a branch {name!r} already, or another program makes it at this moment; open it "
            f"as {with_branch(self._table, name)}, or choose another name",
            table=self._table,
        )

    def _copies(self, target: TablePaths, from_tag: str | None) -> dict[str, bytes]:
        """What the branch begins with, by path."""
        source, schemas = self._store.paths, SchemaStore(self._store.env, self._store.paths)
        found: dict[str, bytes] = {}
        if from_tag is None:
            ids = schemas.list_ids()
        else:
            tag = self._store.snapshots.tags.of(from_tag)
            found[target.tag(from_tag)] = self._read(source.tag(from_tag))
            found[target.snapshot(tag.id)] = self._snapshot_bytes(tag)
            ids = [each for each in schemas.list_ids() if each <= tag.schema_id]
        now_ms = self._store.env.now_ms()  # who has an earlier branch of this name open finds another schema
        for each in reversed(ids):
            path = source.schema(each)
            found[target.schema(each)] = made_again(self._read(path), path, now_ms)
        return found

    def _snapshot_bytes(self, tag: Snapshot) -> bytes:
        """The file of the snapshot that a tag holds, made anew where it has expired."""
        path = self._store.paths.snapshot(tag.id)
        try:
            data = self._read(path)
        except NotFoundError:
            return encode_snapshot(tag)
        return data if decode_snapshot(data, path) == tag else encode_snapshot(tag)

    def _read(self, path: str) -> bytes:
        return self._store.env.file_io.read_bytes(path)

    def _check_tag_is_there(self, from_tag: str | None, copies: dict[str, bytes], target: TablePaths) -> None:
        """Without its tag, what the branch names could have expired before the branch was there to be seen."""
        if from_tag is None:
            return
        try:
            is_same = self._read(self._store.paths.tag(from_tag)) == copies[target.tag(from_tag)]
        except NotFoundError:
            is_same = False
        if not is_same:
            raise ConflictError(
                f"tag {from_tag!r} of table {self._table} was deleted or replaced while a branch was made from it; "
                "nothing was made",
                table=self._table,
            )

    def _undo(self, paths: TablePaths) -> None:
        if is_marked(self._store.env, paths):
            self._store.removal.delete_prefix(paths.schema_folder)
            self._store.removal.delete_prefix(paths.home)

    def _check_changeable(self, name: str, done: str) -> None:
        """Refuses what is no branch of the table, the one that this is, and one that readers need."""
        store, known = self._store, self._store.snapshots.branches()
        if name not in known:
            raise NotFoundError(
                f"table {self._table} has no branch {name!r}; branches there are: {', '.join(known) or 'none'}",
                table=self._table,
            )
        if name == store.paths.branch_name:
            raise InvalidRequestError(
                f"branch {store.name} cannot be {done} by what is opened on it; open the table", table=store.name
            )
        store.claims.check_writable()
        self._check_not_read_with(name, done)

    def _check_not_read_with(self, name: str, done: str) -> None:
        schema = SchemaStore(self._store.env, self._store.paths.branch(None)).latest()
        for key in READ_WITH if schema is not None else ():
            if schema is not None and schema.options.get(key, "").strip() == name:
                raise InvalidRequestError(
                    f"branch {name!r} of table {self._table} cannot be {done}: {key}={name} lets readers of the table "
                    "read it; take that option away first",
                    table=self._table,
                    option=key,
                )
