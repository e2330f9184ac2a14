"""CREATE DATABASE, CREATE TABLE, CREATE TABLE … AS SELECT, CREATE TABLE … LIKE.

A primary key is written as Apache Paimon's Spark SQL has it, `TBLPROPERTIES ('primary-key' = 'id')`, or as
`PRIMARY KEY (id)` among the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from freshet.storage.exceptions import AlreadyExistsError
from freshet.storage.model.data_type import DataField
from freshet.storage.options.values import split_names
from freshet.storage.sql.column_types import field_of_definition
from freshet.storage.sql.insert import fitted_rows
from freshet.storage.sql.literals import properties, text_literal
from freshet.storage.sql.names import SqlName, column_name, table_name
from freshet.storage.sql.query import QueryPlan, plan_query, rows_of
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.refused_statements import NO_VIEWS, REPLACE_ROWS
from freshet.storage.sql.result import SqlResult, edited, said
from freshet.storage.sql.session import SqlSession
from freshet.storage.sql.words import Words

PRIMARY_KEY = "primary-key"
PARTITION = "partition"
_PROVIDERS = ("paimon", "freshet")


@dataclass(frozen=True)
class CreateDatabase:
    """CREATE DATABASE."""

    name: SqlName
    if_not_exists: bool
    properties: Mapping[str, str]

    def run(self, session: SqlSession) -> SqlResult:
        """Creates it."""
        catalog = session.catalog_of(self.name)
        catalog.create_database(self.name.name, if_not_exists=self.if_not_exists, properties=self.properties or None)
        return said(f"database {self.name.name} is there")


def plan_create_database(words: Words) -> CreateDatabase:
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
    return CreateDatabase(name, if_not_exists, given)


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE, with columns, with those of a query, or with those of another table."""

    name: SqlName
    if_not_exists: bool
    fields: tuple[DataField, ...] = ()
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    query: QueryPlan | None = None
    like: SqlName | None = None

    def run(self, session: SqlSession) -> SqlResult:
        """Creates it; of a query whose rows cannot be written nothing is left."""
        catalog, identifier = session.place(self.name)
        if self.if_not_exists and catalog.has_table(identifier):
            return said(f"table {identifier} was there already")
        schema: pa.Schema | dict[str, DataField] = {each.name: each for each in self.fields}
        keys, partition_keys, options, comment = self.primary_keys, self.partition_keys, self.options, self.comment
        rows = None
        if self.query is not None:
            rows = rows_of(session, self.query.tree)
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


def plan_create_table(tree: exp.Create) -> CreateTable:
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
    made = _properties(tree.args.get("properties"))
    fields, keys = _columns([*definitions, *made.partition_columns])
    query = None if tree.expression is None else plan_query(tree.expression.unnest())
    if query is not None and fields:
        raise refused(tree, "columns beside AS SELECT, which has the columns of its query")
    if made.like is not None and (fields or made.partition_keys or made.primary_keys or query is not None):
        raise refused(tree, "LIKE takes columns and keys from the other table")
    if query is None and made.like is None and not fields:
        raise wrong(tree, "name the columns of the table, (id BIGINT, …), or AS SELECT")
    if keys and made.primary_keys:
        raise wrong(tree, "it has two primary keys: PRIMARY KEY and 'primary-key'; give one")
    return CreateTable(
        name,
        bool(tree.args.get("exists")),
        tuple(fields),
        tuple(keys) or made.primary_keys,
        made.partition_keys,
        made.options,
        made.comment,
        query,
        made.like,
    )


@dataclass(frozen=True)
class _Properties:
    partition_keys: tuple[str, ...]
    partition_columns: tuple[exp.Expr, ...]
    primary_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    like: SqlName | None


def _properties(node: exp.Properties | None) -> _Properties:
    partition_keys: list[str] = []
    columns: list[exp.Expr] = []
    options: dict[str, str] = {}
    comment, like = None, None
    for each in node.expressions if node is not None else ():
        match each:
            case exp.PartitionedByProperty(this=exp.Schema() as schema):
                columns = [key for key in schema.expressions if isinstance(key, exp.ColumnDef)]
                partition_keys = [
                    key.name if isinstance(key, exp.ColumnDef) else _partition_key(key) for key in schema.expressions
                ]
            case exp.SchemaCommentProperty():
                comment = text_literal(each.this)
            case exp.FileFormatProperty() if each.this.name.lower() in _PROVIDERS:
                pass
            case exp.LikeProperty():
                only(each, "this")
                like = table_name(each.this)
            case exp.Property() if type(each) is exp.Property:
                new = properties([each])
                if new.keys() & options.keys():
                    raise wrong(each, "the option has two values")
                options |= new
            case _:
                raise refused(each)
    comment = options.pop("comment", comment)
    keys = split_names(options.pop(PRIMARY_KEY)) if PRIMARY_KEY in options else ()
    if PARTITION in options:
        raise wrong(f"'{PARTITION}'", "write PARTITIONED BY (…)")
    return _Properties(tuple(partition_keys), tuple(columns), keys, options, comment, like)


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
