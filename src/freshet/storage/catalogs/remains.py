"""What a drop removes of a table, and what an interrupted one has left, which would show in a new one of its name.

A folder is removed file by file, in no order, so snapshots may be gone while a tag or a branch is still there. Data
files and manifests that no snapshot names show nowhere, and are removed as orphan files.
"""

from __future__ import annotations

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.file_io import FileIO
from freshet.storage.io.removal import Removal
from freshet.storage.paths import TablePaths


def remove_table(env: Env, paths: TablePaths) -> None:
    """Removes the files of a table. The schema goes first: without it what is not removed yet is neither read nor
    written. Where its folder is a link, that goes, and what it leads to stays."""
    if not leads_elsewhere(env.file_io, paths.location):
        removal = Removal(env.file_io, paths.location)
        removal.delete_prefix(paths.schema_folder)
        env.reach(CrashPoint.TABLE_SCHEMAS_REMOVED)
    env.file_io.delete_prefix(paths.location)


def leads_elsewhere(file_io: FileIO, folder: str) -> bool:
    """True for a folder that is a link."""
    return Removal(file_io, folder.rpartition("/")[0]).way_out(f"{folder}/") is not None


def has_remains(file_io: FileIO, paths: TablePaths) -> bool:
    """True where a folder has snapshots, changelogs, tags, branches or consumers."""
    shown = {
        paths.snapshot_folder,
        paths.changelog_folder,
        paths.tag_folder,
        paths.branch_folder,
        paths.consumer_folder,
    }
    return any(
        any(file_io.entries(entry.path))  # a folder may be empty where a store has folders
        for entry in file_io.entries(paths.location)
        if entry.is_folder and entry.path in shown
    )


def remains_error(table: str, paths: TablePaths) -> InvalidRequestError:
    """Why a table is not created over them."""
    return InvalidRequestError(
        f"table {table} cannot be created: {paths.location} holds snapshots, tags or branches of an earlier table, "
        "which was not dropped to the end, and they would show in the new one; remove them with drop_table",
        table=table,
        path=paths.location,
    )
