"""DROP DATABASE, DROP TABLE, TRUNCATE TABLE."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from freshet.storage.sql.alter import DropPartitions
from freshet.storage.sql.literals import partition_values
from freshet.storage.sql.names import SqlName, only_name, table_name
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.result import SqlResult, edited, said
from freshet.storage.sql.session import SqlSession

_DATABASES = ("DATABASE", "SCHEMA", "NAMESPACE")


@dataclass(frozen=True)
class DropDatabase:
    """DROP DATABASE."""

    name: SqlName
    if_exists: bool
    cascade: bool

    def run(self, session: SqlSession) -> SqlResult:
        """Drops it, with its tables only where CASCADE says so."""
        session.catalog_of(self.name).drop_database(self.name.name, cascade=self.cascade, if_exists=self.if_exists)
        return said(f"database {self.name.name} is gone")


@dataclass(frozen=True)
class DropTable:
    """DROP TABLE."""

    name: SqlName
    if_exists: bool

    def run(self, session: SqlSession) -> SqlResult:
        """Drops it with its files."""
        catalog, identifier = session.place(self.name)
        catalog.drop_table(identifier, if_exists=self.if_exists)
        return said(f"table {identifier} is gone")


@dataclass(frozen=True)
class Truncate:
    """TRUNCATE TABLE."""

    name: SqlName

    def run(self, session: SqlSession) -> SqlResult:
        """Takes every row away."""
        table = session.table(self.name)
        return edited(table, table.truncate())


def plan_drop(tree: exp.Drop) -> DropDatabase | DropTable:
    """The plan of DROP; refuses all but databases and tables."""
    kind, tables = tree.args.get("kind"), tree.args.get("tables") or []
    if len(tables) != 1 or not isinstance(tables[0], exp.Table):
        raise refused(tree, "one thing is dropped at a time")
    if_exists = bool(tree.args.get("exists"))
    if kind == "TABLE":
        only(tree, "kind", "tables", "exists", "purge")  # files go with the table in any case
        return DropTable(table_name(tables[0]), if_exists)
    if kind not in _DATABASES:
        raise refused(tree)
    only(tree, "kind", "tables", "exists", "cascade", "restrict")
    only_name(tables[0])
    name = SqlName.of([part.name for part in tables[0].parts if part.name]).as_database()
    return DropDatabase(name, if_exists, bool(tree.args.get("cascade")))


def plan_truncate(tree: exp.TruncateTable) -> Truncate | DropPartitions:
    """The plan of TRUNCATE TABLE."""
    only(tree, "expressions", "partition")
    if len(tree.expressions) != 1:
        raise refused(tree, "one table is truncated at a time")
    name = table_name(tree.expressions[0])
    partition = tree.args.get("partition")
    if partition is None:
        return Truncate(name)
    values, open_keys = partition_values(partition)
    if open_keys or not values:
        raise wrong(partition, "give the key a value: PARTITION (dt = '2026-11-22')")
    return DropPartitions(name, (values,))
