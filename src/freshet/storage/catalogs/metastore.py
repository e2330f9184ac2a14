"""What a catalog knows: which databases and tables there are, where a table lies, and how its ids are claimed.

`freshet.Catalog` is what people hold: it checks names and schemas, words the errors, and asks a metastore, which does
what is asked or answers that it was too late. What there is:

| `metastore` | names are | a table lies | properties of databases | renaming a table |
|---|---|---|---|---|
| `filesystem` | folders of the warehouse | where its name says | none | renames the folder, where the store can |
| `jdbc` | rows of a database | where its name says | kept | the rows, then the folder, where the store can |

A new catalog is a module of this room, an entry of `registry.METASTORES`, which names the options that it takes, and a
`Kind` of `tests/storage/catalogs/test_catalogs.py`, which runs for all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from freshet._frozen import Frozen
from freshet.storage.catalogs.claims import TableClaims
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.display import shortened
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.secrets import shown_text

BRANCH: Final = CoreOptions.branch.key
"""The option that opens a branch."""
_MAIN_BRANCH: Final = "main"
"""What the table itself is called among its branches."""
_BRANCH_MARK: Final = "$branch_"
NAME_BYTES_MAX: Final = 250
"""Of 255 that file systems allow; a database's folder has a suffix."""
_BRANCH_BYTES_MAX: Final = 200

_SHOWN_MAX: Final = 100
_LOG: Final = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[^\s/\\.$@][^/\\$@]*")


class TableName(NamedTuple):
    """A table's name in a catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class FoundTable(Frozen):
    """Where a table lies, and how its ids are claimed."""

    location: str
    claims: TableClaims
    schema_id: int | None = None
    """The newest schema, where the catalog came across it."""


class Metastore(Protocol):
    """Databases and tables by name. Names are valid when they come here. May be shared by threads."""

    @property
    def warehouse(self) -> str:
        """What messages call the catalog."""

    def list_databases(self) -> list[str]:
        """Names, sorted."""

    def has_database(self, name: str) -> bool:
        """True when there is such a database."""

    def create_database(self, name: str, properties: Mapping[str, str]) -> bool:
        """False when there is one already, which stays as it is. `UnsupportedFeatureError` for properties that the
        catalog cannot keep."""

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database that is there."""

    def alter_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets properties of a database that is there; None removes one. `UnsupportedFeatureError` as above."""

    def drop_database(self, name: str) -> None:
        """Removes a database with all tables in it."""

    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of a database that is there, sorted."""

    def list_remains(self, database: str, tables: Collection[str]) -> list[str]:
        """Names of folders besides the tables that have snapshots, and whose schema was lost; none where another
        place than the folders says what is a table."""

    def list_views(self, database: str) -> list[str]:
        """Names of the views of a database, which other programs make, sorted."""

    def find_table(self, name: TableName) -> FoundTable | None:
        """The table; None when there is none."""

    def table_claims(self, name: TableName) -> TableClaims | None:
        """How the ids of a table are claimed that another process has found; None where it is known to be gone."""

    def find_remains(self, name: TableName) -> FoundTable | None:
        """What is left of a table that is not found: its schema was lost, or an interrupted call dropped it in part."""

    def create_table(self, name: TableName, schema: TableSchema) -> bool:
        """Writes schema 0 of a table in a database that is there; False when there is a table of the name."""

    def register_table(self, name: TableName) -> bool:
        """Makes a table of files that are where one of this name would be; False where it is one already.
        `NotFoundError` when there are none, `UnsupportedFeatureError` where nothing says where they would be."""

    def drop_table(self, name: TableName) -> bool:
        """Removes a table with its files, also what an interrupted call has left; False when there is neither. From
        its first step on the table is neither read nor written."""

    def rename_table(self, name: TableName, to: TableName) -> None:
        """Gives a table another name, in a database that is there; all of its snapshots, tags and branches stay.

        `NotFoundError` when it is gone, `AlreadyExistsError` when the name is taken, `UnsupportedFeatureError` where
        the catalog cannot.
        """


def split_branch(identifier: str) -> tuple[str, str | None]:
    """A name of a table without its branch, and the branch, None for the table itself: a branch is named
    `database.table$branch_<name>`, wherever a name of a table is taken.

    `main` is the table itself. Other programs take the same names; a branch whose name they could not write is not
    made.

    Source: FORMAT.md §12.
    """
    if not isinstance(identifier, str) or _BRANCH_MARK not in identifier:
        return identifier, None
    table, _, branch = identifier.partition(_BRANCH_MARK)
    return (table, named_branch(branch)) if branch and not table.endswith(".") else (identifier, None)


def with_branch(identifier: str, branch: str | None) -> str:
    """The inverse of `split_branch`."""
    return identifier if branch is None else f"{identifier}{_BRANCH_MARK}{branch}"


def branch_name(name: TableName, branch: str) -> TableName:
    """What a branch is called in the catalog of its table."""
    return TableName(name.database, with_branch(name.table, branch))


def named_branch(text: str) -> str | None:
    """The branch that an option or a name means; None for the table itself. Raises `InvalidRequestError` for what is
    no name of a branch."""
    branch = text.strip()
    return None if branch.lower() in ("", _MAIN_BRANCH) else checked_branch(branch)


def checked_branch(name: str) -> str:
    """The name, if a branch can have it; `InvalidRequestError` otherwise."""
    reason = _why_not(name)
    if reason is not None:
        raise InvalidRequestError(f"{name!r} cannot be the name of a branch: {reason}", option="branch")
    return name


def _why_not(name: str) -> str | None:
    if not isinstance(name, str) or not name.strip():
        return "it is blank"
    if name.lower() == _MAIN_BRANCH:
        return "so the table itself is called among its branches"
    if name.isdigit():
        return "it is a number, which other programs do not take for a branch"
    fault = fault_of_name(name, _BRANCH_BYTES_MAX)
    return None if fault is None else f"it {fault}"


def fault_of_name(name: object, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """What keeps a name from being that of a folder; None where nothing does."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name != name.strip() or not name.isprintable():
        return "cannot be used; avoid '/', '\\', '$', '@', a leading dot, blanks at the ends and control characters"
    size = len(name.encode())
    return f"has {size} bytes; at most {bytes_max} fit into a folder name" if size > bytes_max else None


def usable_names(kind: str, names: Sequence[str], place: str) -> list[str]:
    """The names that can be used; others are what somebody else has put there."""
    kept = []
    for name in names:
        if (fault := fault_of_name(name)) is None:
            kept.append(name)
        else:
            _LOG.warning("a %s in %s is left out: its name %r %s", kind, shown_text(place), name, fault)
    return kept


def check_name(kind: str, name: str) -> None:
    """Raises `InvalidRequestError` for a name that cannot be used; `kind` is what it is of."""
    if (fault := fault_of_name(name)) is not None:
        raise InvalidRequestError(f"{kind} name {shortened(ascii(name), _SHOWN_MAX)} {fault}")
