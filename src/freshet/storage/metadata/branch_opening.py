"""What opening a branch of a table asks besides: which branch is meant, whether it is whole, and its options.

A branch shares the folders of data, manifests and index files with its table. Schemas, snapshots, tags, changelogs and
consumers are its own, in branch/branch-<name>/. It has no log: what the options of its schema say of one is meant for
the table, whose readers would take the branch's changes for the table's.

Source: FORMAT.md §1, §12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet.storage.catalogs.metastore import BRANCH, named_branch
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.logs.log_systems import WITHOUT_LOG
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import TablePaths

WHOLE: Final = b"whole"
"""What a marker holds that may be removed: a disk can lose its removal, and not this."""


def asked_branch(options: Mapping[str, str], branch: str | None, name: str) -> tuple[dict[str, str], str | None]:
    """The options without that of the branch, and the branch; `InvalidRequestError` where two are asked for."""
    rest = {key: text for key, text in options.items() if key != BRANCH}
    if BRANCH not in options:
        return rest, branch
    asked = named_branch(options[BRANCH])
    if branch is not None and branch != asked:
        raise InvalidRequestError(
            f"table {name} is opened on branch {branch}, and option {BRANCH}={options[BRANCH]} asks for another one; "
            "leave one of them out",
            table=name,
            option=BRANCH,
        )
    return rest, asked


def check_whole(env: Env, paths: TablePaths, name: str) -> None:
    """Raises `InvalidRequestError` for a branch that is half made, or half dropped (`branch_store`); one call."""
    if is_marked(env, paths):
        raise InvalidRequestError(
            f"branch {name} is not whole: it is being made or dropped at this moment, or that was interrupted. Wait, "
            "or drop it (branches.drop, CALL sys.delete_branch in freshet sql) and create it again",
            table=name,
            path=paths.home,
        )


def is_marked(env: Env, paths: TablePaths) -> bool:
    """True where a marker says that the branch is not whole."""
    try:
        return env.file_io.read_bytes(paths.branch_marker) != WHOLE
    except NotFoundError:
        return False


def own_options(schema: TableSchema, branch: str | None) -> dict[str, str]:
    """The options of a schema; on a branch without the log, and without its name, which other programs may note: a
    rename leaves the old one there."""
    if branch is None:
        return dict(schema.options)
    own = {key: text for key, text in schema.options.items() if key != BRANCH}
    return {**own, **WITHOUT_LOG} if CoreOptions.log_system.key in own else own


def no_branch(env: Env, paths: TablePaths, name: str) -> NotFoundError:
    """The error for a branch without a schema file."""
    known = ", ".join(SnapshotStore(env, paths).branches()) or "none"
    return NotFoundError(
        f"there is no branch {name}: {paths.home} has no schema file; branches of the table: {known}. Create it with "
        "branches.create, or CALL sys.create_branch in freshet sql",
        table=name,
        path=paths.home,
    )
