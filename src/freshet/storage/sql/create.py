"""CREATE DATABASE, CREATE TABLE, CREATE TABLE … AS SELECT, CREATE TABLE … LIKE; DROP DATABASE, DROP TABLE, TRUNCATE
TABLE.

A primary key is written as Apache Paimon's Spark SQL has it, `TBLPROPERTIES ('primary-key' = 'id')`, or as
`PRIMARY KEY (id)` among the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from sqlglot import exp

from freshet._frozen import Frozen, field
from freshet.storage.exceptions import AlreadyExistsError, InvalidRequestError, NotFoundError
from freshet.storage.model.data_type import DataField
from freshet.storage.options.values import split_names
from freshet.storage.sql.alter import plan_drop_partitions
from freshet.storage.sql.column_types import field_of_definition
from freshet.storage.sql.insert import fitted_rows
from freshet.storage.sql.names import (
    SqlName,
    column_name,
    only_name,
    partition_values,
    properties,
    table_name,
    text_literal,
)
from freshet.storage.sql.query import checked_query, rows_of
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.refused_statements import NO_VIEWS, REPLACE_ROWS
from freshet.storage.sql.result import SqlResult, edited, said
from freshet.storage.sql.session import Plan, SqlSession
from freshet.storage.sql.sql_text import Words

PRIMARY_KEY = "primary-key"
PARTITION = "partition"
_PROVIDERS = ("paimon", "freshet")

_DATABASE_WORDS = ("DATABASE", "SCHEMA", "NAMESPACE")


def plan_create_database(words: Words) -> Plan:
    """The plan of CREATE DATABASE."""
    words.expect("CREATE")
    words.accept_one("DATABASE", "SCHEMA", "NAMESPACE")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = words.dotted().as_database()
    given: dict[str, str] = {}
    while words.rest:
        if words.accept("COMMENT"):
            given["comment"] = words.text()
        elif words.accept("WITH", "DBPROPERTIES") or words.accept("WITH", "PROPERTIES"):
            given |= words.pairs()
        else:
            raise words.unexpected()
    return Plan(partial(_create_database, name, if_not_exists, given))


def _create_database(
    name: SqlName, if_not_exists: bool, properties: Mapping[str, str], session: SqlSession
) -> SqlResult:
    catalog = session.catalog_of(name)
    catalog.create_database(name.name, if_not_exists=if_not_exists, properties=properties or None)
    return said(f"database {name.name} is there")


class _NewTable(Frozen):
    """CREATE TABLE, with columns, with those of a query, or with those of another table."""

    name: SqlName
    if_not_exists: bool
    fields: tuple[DataField, ...] = ()
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    query: exp.Query | None = None
    like: SqlName | None = None

    def create(self, session: SqlSession) -> SqlResult:
        """Creates it; of a query whose rows cannot be written nothing is left."""
        catalog, identifier = session.place(self.name)
        if self.if_not_exists and catalog.has_table(identifier):
            return said(f"table {identifier} was there already")
        schema: pa.Schema | dict[str, DataField] = {each.name: each for each in self.fields}
        keys, partition_keys, options, comment = self.primary_keys, self.partition_keys, self.options, self.comment
        rows = None
        if self.query is not None:
            rows = rows_of(session, self.query)
            _check_different(rows.given_names)
            schema = rows.schema
        if self.like is not None:
            original = session.table(self.like).schema
            schema = {each.name: each for each in original.fields}
            keys, partition_keys = original.primary_keys, original.partition_keys
            options = {**original.options, **self.options}
            comment = original.comment if comment is None else comment
        try:
            table = catalog.create_table(
                identifier,
                schema=schema,
                primary_keys=_as_columns(keys, schema),
                partition_keys=_as_columns(partition_keys, schema),
                options=options,
                comment=comment,
            )
        except AlreadyExistsError:  # also where another program was faster: its table is not filled, nor dropped
            if not self.if_not_exists:
                raise
            return said(f"table {identifier} was there already")
        if rows is None:
            return said(f"table {identifier} is there")
        try:
            with fitted_rows(table, rows, list(table.schema.column_names)).read_by() as stream:
                return edited(table, table.append(stream))
        except BaseException:
            catalog.drop_table(identifier, if_exists=True)
            raise


def _check_different(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise wrong(name, "the query has two columns of this name; give one of them another by AS")
        seen.add(name.lower())


def plan_create_table(tree: exp.Create) -> Plan:
    """The plan of CREATE TABLE; refuses what it says besides, and every other CREATE."""
    if tree.args.get("kind") == "VIEW":
        raise refused(tree, NO_VIEWS)
    if tree.args.get("kind") != "TABLE":
        raise refused(tree)
    if tree.args.get("replace"):
        raise refused("CREATE OR REPLACE TABLE", REPLACE_ROWS)
    only(tree, "this", "kind", "exists", "properties", "expression")
    target = tree.this
    definitions = target.expressions if isinstance(target, exp.Schema) else []
    name = table_name(target.this if isinstance(target, exp.Schema) else target)
    new, more = _with_properties(_NewTable(name, bool(tree.args.get("exists"))), tree.args.get("properties"))
    fields, keys = _columns([*definitions, *more])
    query = None if tree.expression is None else checked_query(tree.expression.unnest())
    if query is not None and fields:
        raise refused(tree, "columns beside AS SELECT, which has the columns of its query")
    if new.like is not None and (fields or new.partition_keys or new.primary_keys or query is not None):
        raise refused(tree, "LIKE takes columns and keys from the other table")
    if query is None and new.like is None and not fields:
        raise wrong(tree, "name the columns of the table, (id BIGINT, …), or AS SELECT")
    if keys and new.primary_keys:
        raise wrong(tree, "it has two primary keys: PRIMARY KEY and 'primary-key'; give one")
    primary_keys = tuple(keys) or new.primary_keys
    return Plan(replace(new, fields=tuple(fields), primary_keys=primary_keys, query=query).create)


def _with_properties(new: _NewTable, node: exp.Properties | None) -> tuple[_NewTable, list[exp.Expr]]:
    """The table with what stands behind its columns, and columns that are defined in PARTITIONED BY."""
    columns: list[exp.Expr] = []
    options: dict[str, str] = {}
    for each in node.expressions if node is not None else ():
        match each:
            case exp.PartitionedByProperty(this=exp.Schema() as schema):
                columns = [key for key in schema.expressions if isinstance(key, exp.ColumnDef)]
                keys = [
                    key.name if isinstance(key, exp.ColumnDef) else _partition_key(key) for key in schema.expressions
                ]
                new = replace(new, partition_keys=tuple(keys))
            case exp.SchemaCommentProperty():
                new = replace(new, comment=text_literal(each.this))
            case exp.FileFormatProperty() if each.this.name.lower() in _PROVIDERS:
                pass
            case exp.LikeProperty():
                only(each, "this")
                new = replace(new, like=table_name(each.this))
            case exp.Property() if type(each) is exp.Property:
                given = properties([each])
                if given.keys() & options.keys():
                    raise wrong(each, "the option has two values")
                options |= given
            case _:
                raise refused(each)
    comment = options.pop("comment", new.comment)
    primary_keys = split_names(options.pop(PRIMARY_KEY)) if PRIMARY_KEY in options else ()
    if PARTITION in options:
        raise wrong(f"'{PARTITION}'", "write PARTITIONED BY (…)")
    return replace(new, primary_keys=primary_keys, options=options, comment=comment), columns


def _partition_key(node: exp.Expr) -> str:
    if not isinstance(node, exp.Identifier | exp.Column):
        raise refused(node, "tables are partitioned by columns")
    return column_name(node)


def _columns(definitions: list[exp.Expr]) -> tuple[list[DataField], list[str]]:
    """Columns, and the primary key that is among their definitions."""
    fields: list[DataField] = []
    keys: list[str] = []
    for each in definitions:
        if isinstance(each, exp.PrimaryKey):
            keys += [column_name(part) for part in each.expressions]
            continue
        made = field_of_definition(each)
        if each.args.get("position"):
            raise refused(each)
        if made.name in [known.name for known in fields]:
            raise wrong(each, "the table has two columns of this name")
        fields.append(made)
        keys += [made.name for part in each.args.get("constraints") or () if _is_key(part)]
    return fields, keys


def _is_key(constraint: exp.Expr) -> bool:
    return isinstance(constraint.args.get("kind"), exp.PrimaryKeyColumnConstraint)


def _as_columns(names: tuple[str, ...], schema: pa.Schema | Mapping[str, DataField]) -> list[str]:
    """Names of key columns as the columns are written; case does not matter."""
    known = {name.lower(): name for name in (schema.names if isinstance(schema, pa.Schema) else schema)}
    return [known.get(name.lower(), name) for name in names]


def plan_drop(tree: exp.Drop) -> Plan:
    """The plan of DROP; refuses all but databases and tables."""
    kind, tables = tree.args.get("kind"), tree.args.get("tables") or []
    if len(tables) != 1 or not isinstance(tables[0], exp.Table):
        raise refused(tree, "one thing is dropped at a time")
    if_exists = bool(tree.args.get("exists"))
    if kind == "TABLE":
        only(tree, "kind", "tables", "exists", "purge")  # files go with the table in any case
        return Plan(partial(_drop_table, table_name(tables[0]), if_exists), has_dry_run=True)
    if kind not in _DATABASE_WORDS:
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
