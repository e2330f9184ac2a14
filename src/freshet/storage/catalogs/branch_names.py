"""How a branch of a table is named: `database.table$branch_<name>`, wherever a name of a table is taken.

`main` is the table itself. Other programs take the same names; a branch whose name they could not write is not made.

Source: FORMAT.md §12.
"""

from __future__ import annotations

import re
from typing import Final

from freshet.storage.catalogs.metastore import TableName
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.core import CoreOptions

BRANCH: Final = CoreOptions.branch.key
"""The option that opens a branch."""
MAIN_BRANCH: Final = "main"
"""What the table itself is called among its branches."""
BRANCH_MARK: Final = "$branch_"
NAME_BYTES_MAX: Final = 200
"""A folder name has 255 at most, and this one has a prefix."""

_NAME: Final = re.compile(r"[^\s/\\.$@][^/\\$@]*")


def split_branch(identifier: str) -> tuple[str, str | None]:
    """A name of a table without its branch, and the branch, None for the table itself."""
    if not isinstance(identifier, str) or BRANCH_MARK not in identifier:
        return identifier, None
    table, _, branch = identifier.partition(BRANCH_MARK)
    return table, named_branch(branch)


def with_branch(identifier: str, branch: str | None) -> str:
    """The inverse of `split_branch`."""
    return identifier if branch is None else f"{identifier}{BRANCH_MARK}{branch}"


def branch_name(name: TableName, branch: str) -> TableName:
    """What a branch is called in the catalog of its table."""
    return TableName(name.database, with_branch(name.table, branch))


def named_branch(text: str) -> str | None:
    """The branch that an option or a name means; None for the table itself. Raises `InvalidRequestError` for what is
    no name of a branch."""
    branch = text.strip()
    return None if branch.lower() in ("", MAIN_BRANCH) else checked_branch(branch)


def checked_branch(name: str) -> str:
    """The name, if a branch can have it; `InvalidRequestError` otherwise."""
    reason = _why_not(name)
    if reason is not None:
        raise InvalidRequestError(f"{name!r} cannot be the name of a branch: {reason}", option="branch")
    return name


def _why_not(name: str) -> str | None:
    if not isinstance(name, str) or not name.strip():
        return "it is blank"
    if name.lower() == MAIN_BRANCH:
        return "so the table itself is called among its branches"
    if name.isdigit():
        return "it is a number, which other programs do not take for a branch"
    if not _NAME.fullmatch(name) or name != name.strip() or not name.isprintable():
        return "avoid '/', '\\', '$', '@', a leading dot, blanks at the ends and control characters"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"it has {len(name.encode())} bytes; at most {NAME_BYTES_MAX} fit into a folder name"
    return None
