"""What a catalog knows: which databases and tables there are, where a table lies, and how its ids are claimed.

`freshet.Catalog` is what people hold: it checks names and schemas, words the errors, and asks a metastore, which does
what is asked or answers that it was too late. What there is:

| `metastore` | names are | a table lies | properties of databases | renaming a table |
|---|---|---|---|---|
| `filesystem` | folders of the warehouse | where its name says | none | renames the folder, where the store can |
| `jdbc` | rows of a database | where its name says | kept | the rows, then the folder, where the store can |
| `memory` | in the memory of this process | in a folder without its name | kept | changes the name |

A new catalog is a module of this room, an entry of `registry.METASTORES`, which names the options that it takes, and a
`Kind` of `tests/storage/catalogs/test_catalogs.py`, which runs for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from freshet.storage.catalogs.claims import TableClaims
from freshet.storage.model.schema import TableSchema


class TableName(NamedTuple):
    """A table's name in a catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class FoundTable:
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
        """Of a database that is there."""

    def alter_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets properties of a database that is there; None removes one. `UnsupportedFeatureError` as above."""

    def drop_database(self, name: str) -> None:
        """Removes a database with all tables in it."""

    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of a database that is there, sorted."""

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
