"""DROP DATABASE, DROP TABLE, TRUNCATE TABLE."""

from __future__ import annotations

from functools import partial

from sqlglot import exp

from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.sql.names import SqlName, only_name, partition_values, table_name
from freshet.storage.sql.partitions import plan_drop_partitions
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.result import SqlResult, edited, said
from freshet.storage.sql.session import Plan, SqlSession

_DATABASES = ("DATABASE", "SCHEMA", "NAMESPACE")


def plan_drop(tree: exp.Drop) -> Plan:
    """The plan of DROP; refuses all but databases and tables."""
    kind, tables = tree.args.get("kind"), tree.args.get("tables") or []
    if len(tables) != 1 or not isinstance(tables[0], exp.Table):
        raise refused(tree, "one thing is dropped at a time")
    if_exists = bool(tree.args.get("exists"))
    if kind == "TABLE":
        only(tree, "kind", "tables", "exists", "purge")  # files go with the table in any case
        return Plan(partial(_drop_table, table_name(tables[0]), if_exists), has_dry_run=True)
    if kind not in _DATABASES:
        raise refused(tree)
    only(tree, "kind", "tables", "exists", "cascade", "restrict")
    only_name(tables[0])
    name = SqlName.of([part.name for part in tables[0].parts if part.name]).as_database()
    return Plan(partial(_drop_database, name, if_exists, bool(tree.args.get("cascade"))), has_dry_run=True)


def plan_truncate(tree: exp.TruncateTable) -> Plan:
    """The plan of TRUNCATE TABLE."""
    only(tree, "expressions", "partition")
    if len(tree.expressions) != 1:
        raise refused(tree, "one table is truncated at a time")
    name = table_name(tree.expressions[0])
    partition = tree.args.get("partition")
    if partition is None:
        return Plan(partial(_truncate, name), has_dry_run=True)
    values, open_keys = partition_values(partition)
    if open_keys or not values:
        raise wrong(partition, "give the key a value: PARTITION (dt = '2026-11-22')")
    return plan_drop_partitions(name, [values])


def _drop_database(name: SqlName, if_exists: bool, cascade: bool, session: SqlSession) -> SqlResult:
    catalog, database = session.catalog_of(name), name.name
    if session.dry_run:
        is_there = database in catalog.list_databases()
        tables = catalog.list_tables(database) if is_there or not if_exists else []
        if tables and not cascade:
            raise InvalidRequestError(f"database {database!r} has the tables {', '.join(tables)}; add CASCADE")
        return said(f"database {database} would be gone, with {', '.join(tables) or 'no tables'}")
    catalog.drop_database(database, cascade=cascade, if_exists=if_exists)
    return said(f"database {database} is gone")


def _drop_table(name: SqlName, if_exists: bool, session: SqlSession) -> SqlResult:
    catalog, identifier = session.place(name)
    if session.dry_run:
        if not if_exists and not catalog.has_table(identifier):
            raise NotFoundError(f"there is no table {identifier} in {catalog.warehouse}", table=identifier)
        return said(f"table {identifier} would be gone")
    catalog.drop_table(identifier, if_exists=if_exists)
    return said(f"table {identifier} is gone")


def _truncate(name: SqlName, session: SqlSession) -> SqlResult:
    table = session.table(name)
    return edited(table, table.truncate(dry_run=session.dry_run))
