"""Names in SQL: `table`, `database.table`, `catalog.database.table`, with backticks around other characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from freshet._frozen import Frozen
from freshet.storage.sql.refusals import refused, wrong

FILES: Final = (
    "add the rows of a file by freshet append WAREHOUSE TABLE FILE or Table.append, then name the table; Table.merge "
    "and freshet merge take the file itself"
)
"""What does the work of statements that read files."""


class SqlName(Frozen):
    """A name with what is written before its dots. Of a database `name` is the database, and `database` None."""

    name: str
    database: str | None = None
    catalog: str | None = None

    def __str__(self) -> str:
        return ".".join(part for part in (self.catalog, self.database, self.name) if part is not None)

    @classmethod
    def of(cls, parts: Sequence[str]) -> SqlName:
        """The name of a table of these parts."""
        if not 1 <= len(parts) <= 3 or not all(parts):
            raise wrong(".".join(parts), "a table is named as database.table, or catalog.database.table")
        padded = [None] * (3 - len(parts)) + list(parts)
        return cls(parts[-1], padded[1], padded[0])

    def as_database(self) -> SqlName:
        """The same parts as the name of a database: `database`, `catalog.database`."""
        if self.catalog is not None:
            raise wrong(str(self), "a database is named as database, or catalog.database")
        return SqlName(self.name, None, self.database)


def table_name(node: exp.Expr | None) -> SqlName:
    """The name of a table in a statement, which has neither an alias nor anything else."""
    if not isinstance(node, exp.Table):
        raise refused(node if node is not None else "nothing", "the name of a table is expected there")
    only_name(node)
    return name_of(node)


def name_of(node: exp.Table) -> SqlName:
    """The name of a table, whatever else is there."""
    if not all(isinstance(part, exp.Identifier) for part in node.parts):
        raise refused(node, "the name of a table is expected there")
    parts = [part.name for part in node.parts]
    if "/" in parts[-1]:
        raise refused(node, f"a table of a catalog is expected there, not a file: {FILES}")
    return SqlName.of(parts)


def only_name(node: exp.Table, *known: str) -> None:
    """Refuses what a table has besides its name."""
    for name, value in node.args.items():
        if value and name not in ("this", "db", "catalog", *known):
            raise refused(value if isinstance(value, exp.Expr) else node)


def column_name(node: exp.Expr) -> str:
    """The name of one column of the table; fields of it are refused."""
    if isinstance(node, exp.Identifier):
        return str(node.name)
    if not isinstance(node, exp.Column) or len(node.parts) != 1 or isinstance(node.this, exp.Star):
        raise refused(node, "the name of one column is expected there, not of a field in it")
    return str(node.name)
