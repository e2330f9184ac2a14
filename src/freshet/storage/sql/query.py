"""SELECT: which tables a query reads, at which snapshots; an engine computes it.

| behind a table | what is read |
|---|---|
| nothing | the latest snapshot, the same for all places of a table in a query |
| `VERSION AS OF 7`, `VERSION AS OF 'name'` | that snapshot; a tag of this name goes first |
| `TIMESTAMP AS OF '2026-11-22 08:00:00'` | the newest snapshot committed by then; a number is seconds since 1970 |

Refuses a query that compares a text with a number: engines read the text as a number, and fail at the first row in
which it is none. Whether a query can be computed would be a matter of its rows.

A text that is written in the query (`n = '7'`) is read once, before any row, and so it is taken. Scans refuse the same
(`filter_text`). What the types of a query cannot be told of is left to the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.schema import MappingSchema

from freshet._frozen import Frozen
from freshet.storage.model.arguments import reading
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.sql.names import FILES, SqlName, moment_ms, name_of, only_name
from freshet.storage.sql.push_down import needs
from freshet.storage.sql.refusals import refused, shown, wrong
from freshet.storage.sql.result import Rows, SqlResult
from freshet.storage.sql.session import UTC_ZONE, Plan, Query, SqlSession, TableRead, Travel
from freshet.storage.system_tables.system_table import SystemTable

if TYPE_CHECKING:
    from freshet.storage.catalog import Catalog
    from freshet.storage.table import Table


_LABEL: Final = "freshet_"
_NOT_IN_QUERIES: Final = (exp.Into, exp.Lock, exp.Placeholder, exp.Parameter, exp.DML, exp.DDL, exp.Command)
_KEPT: Final = ("version", "alias", "joins", "laterals", "pivots", "sample", "column_aliases")
_INSTEAD: Final = {
    **dict.fromkeys(("csv_scan", "parquet_scan", "read_csv", "read_files", "read_json", "read_parquet"), FILES),
    "table_changes": "Table.changes_between, Table.changelog and freshet changelog give changes",
}
"""What does the work of a function in the place of a table, by its name in small letters."""
_SECONDS_MAX: Final = 10**11

_DIALECT: Final = "spark"
_COMPARISONS: Final = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between),
)
_WRITTEN: Final = "freshet-written"
_REMEDY: Final = "a text cannot be compared with a number: write the value as text, in quotes, or CAST one of them"


class _OpenedTable(Frozen, dict=True):
    """A table that a query reads."""

    catalog: Catalog
    identifier: str
    readable: Table | SystemTable

    @cached_property
    def base(self) -> Table:
        """The table that a system table is of, or the table itself."""
        if isinstance(self.readable, SystemTable):
            return self.catalog.table(self.identifier.rpartition("$")[0])
        return self.readable

    @cached_property
    def latest(self) -> Snapshot | None:
        """The snapshot that all reads of the query share."""
        return None if isinstance(self.readable, SystemTable) else self.readable.latest_snapshot()


class _NamedTable(Frozen):
    """A table at the place where a query names it."""

    node: exp.Table
    name: SqlName
    version: exp.Version | None


def plan_query(tree: exp.Expr) -> Plan:
    """The plan of a query, whose rows are computed when they are asked for."""
    return Plan(partial(_selected, checked_query(tree)))


def _selected(tree: exp.Query, session: SqlSession) -> SqlResult:
    return SqlResult(rows_of(session, tree))


def checked_query(tree: exp.Expr) -> exp.Query:
    """The query as it is written; refuses what is no query, or more."""
    if isinstance(tree, exp.Values):
        tree = exp.select("*").from_(tree.copy())
    if not isinstance(tree, exp.Query):
        raise refused(tree)
    for kind in _NOT_IN_QUERIES:
        for node in tree.find_all(kind):
            if not isinstance(node, exp.Query):
                raise refused(node)
    return tree


def rows_of(session: SqlSession, tree: exp.Query) -> Rows:
    """The rows of a query, of the snapshots that there are now."""
    tree = _without_hints(tree.copy())
    _note_comparisons(tree)
    found = _tables(tree, session)
    opened: dict[SqlName, _OpenedTable] = {}
    travels: dict[str, tuple[_OpenedTable, Travel]] = {}
    schemas: dict[str, pa.Schema] = {}
    for number, each in enumerate(found):
        table = opened.setdefault(each.name, _OpenedTable(*session.readable(each.name)))
        label = f"{_LABEL}{number}"
        travel = {} if each.version is None else _travel(table, each.version, session.engine.zone)
        travels[label] = table, travel
        schemas[label] = table.readable.scan(**travel).schema if travel else table.readable.arrow_schema
        _check_names(each.name, schemas[label])
        _relabel(each, label)
    _without_databases(tree, found)
    with reading("SQL: the query"):
        _refuse_mixed_comparisons(tree, schemas)
        needed = needs(tree, schemas, in_utc=session.engine.zone is UTC_ZONE)
    reads = []
    for label, need in needed.items():
        table, travel = travels[label]
        text = None if need.condition is None else need.condition.sql("spark", comments=False)
        reads.append(
            TableRead(
                label,
                table.catalog,
                table.identifier,
                table.readable,
                pa.schema([schemas[label].field(name) for name in need.columns]),
                text,
                need.predicate,
                travel,
                None if travel else table.latest,
            )
        )
    env = next((table.base.store.env for table in opened.values()), None)
    return session.engine.run(Query(tree, tuple(reads), env))


def _tables(tree: exp.Query, session: SqlSession) -> list[_NamedTable]:
    """The tables of catalogs that a query names; others must be names of WITH, or the engine's own."""
    common = {each.alias.lower() for each in tree.find_all(exp.CTE)}
    if ours := [name for name in common if name.startswith(_LABEL)]:
        raise wrong(ours[0], f"names in WITH that begin with {_LABEL} are not free")
    found = []
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Func):
            function = node.this.name if isinstance(node.this, exp.Anonymous) else node.this.sql_name()
            if not session.engine.takes_function(function):
                instead = _INSTEAD.get(function.lower())
                is_what = f"the function {function} in the place of a table"
                raise refused(node, is_what if instead is None else f"{is_what}: {instead}")
            continue
        name = name_of(node)
        is_bare = name.database is None and name.catalog is None
        if is_bare and (name.name.lower() in common or session.engine.knows(name.name)):
            only_name(node, *_KEPT[1:])
            continue
        only_name(node, *_KEPT)
        found.append(_NamedTable(node, name, node.args.get("version")))
    return found


def _travel(table: _OpenedTable, version: exp.Version, zone: tzinfo) -> Travel:
    """The snapshot that a query asks for, as scans are told."""
    at = version.expression
    if isinstance(at, exp.Cast):
        at = at.this
    if not isinstance(at, exp.Literal) or version.args.get("kind") != "AS OF":
        raise refused(version, "write a number or a text there")
    text = str(at.this)
    if version.name.upper() == "TIMESTAMP":
        return {"timestamp_ms": moment_ms(text, zone) if at.is_string else _seconds(version, text) * 1000}
    if text in [tag.name for tag in table.base.tags.list()] or not (text.isascii() and text.isdigit()):
        return {"tag": text}
    return {"snapshot_id": int(text)}


def _seconds(version: exp.Version, text: str) -> int:
    if not text.isdigit() or int(text) > _SECONDS_MAX:
        raise wrong(
            version,
            "a number there is whole seconds since 1970, as Spark has it; write a text such as '2026-11-22 08:00:00'",
        )
    return int(text)


def _check_names(name: SqlName, schema: pa.Schema) -> None:
    """Refuses a table with columns that SQL cannot tell apart."""
    seen: dict[str, str] = {}
    for column in schema.names:
        other = seen.setdefault(column.lower(), column)
        if other is not column:
            raise wrong(str(name), f"its columns {other!r} and {column!r} are one name in SQL; read it with Table.scan")


def _relabel(found: _NamedTable, label: str) -> None:
    """Gives a table in the tree its label; what the query calls it becomes its alias."""
    node = found.node
    if not node.args.get("alias"):
        node.set("alias", exp.TableAlias(this=exp.to_identifier(found.name.name, quoted=True)))
    node.set("this", exp.to_identifier(label, quoted=True))
    for part in ("db", "catalog", "version"):
        node.set(part, None)


def _without_databases(tree: exp.Query, found: list[_NamedTable]) -> None:
    """`shop.orders.id` as `orders.id`: databases are left out with the names of the tables."""
    names = {(each.name.database or "", each.name.name) for each in found if each.node.alias == each.name.name}
    lowered = {(database.lower(), table.lower()) for database, table in names}
    for column in list(tree.find_all(exp.Column)):
        parts = [part.name.lower() for part in column.parts]
        if len(parts) >= 3 and tuple(parts[-3:-1]) in lowered:
            column.set("db", None)
            column.set("catalog", None)


def _without_hints(tree: exp.Query) -> exp.Query:
    """Hints say how Spark should compute a query, and nothing about its rows, but for OPTIONS of other systems."""
    for hint in list(tree.find_all(exp.Hint)):
        for each in hint.expressions:
            if each.name.upper() == "OPTIONS":
                raise refused(
                    each, "options of a table in a query; VERSION AS OF and TIMESTAMP AS OF choose a snapshot"
                )
        hint.pop()
    return tree


def _note_comparisons(tree: exp.Query) -> None:
    """Keeps how comparisons are written, before the tables in the tree get other names."""
    for node in tree.find_all(*_COMPARISONS):
        node.meta[_WRITTEN] = shown(node)


def _refuse_mixed_comparisons(tree: exp.Query, schemas: Mapping[str, pa.Schema]) -> None:
    """Raises `InvalidRequestError` for a comparison of a text that is not a literal with a number. `schemas` are those
    of the tables, by the names that they have in the tree; `_note_comparisons` came before."""
    for node in _typed(tree, schemas).find_all(*_COMPARISONS):
        sides = list(node.iter_expressions())
        has_texts = any(_is_of(each, exp.DataType.TEXT_TYPES) and not _is_literal(each) for each in sides)
        if has_texts and any(_is_of(each, exp.DataType.NUMERIC_TYPES) for each in sides):
            raise wrong(node.meta.get(_WRITTEN, node), _REMEDY)


def _typed(tree: exp.Query, schemas: Mapping[str, pa.Schema]) -> exp.Expr:
    """The query with the types of its parts, as far as they can be told."""
    types: dict[str, object] = {
        label: {field.name: _type_of(field.type) for field in schema} for label, schema in schemas.items()
    }
    try:
        known = MappingSchema(types, dialect=_DIALECT)
        named = qualify_tables(normalize_identifiers(tree.copy(), dialect=_DIALECT), dialect=_DIALECT)
        qualified = qualify_columns(named, known, expand_stars=False, allow_partial_qualification=True)
        return annotate_types(qualified, known, dialect=_DIALECT)
    except (SqlglotError, RecursionError):
        return exp.Null()


def _type_of(column: pa.DataType) -> exp.DataType:
    if pa.types.is_string(column):
        return exp.DataType.build("TEXT")
    is_number = pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column)
    return exp.DataType.build("DOUBLE" if is_number else "UNKNOWN")


def _is_of(part: exp.Expr, types: frozenset[exp.DType] | set[exp.DType]) -> bool:
    return part.type is not None and part.type.this in types


def _is_literal(part: exp.Expr) -> bool:
    return isinstance(part.unnest(), exp.Literal)
