"""SQL text in, results out: each statement becomes a plan by its kind, and the plan is carried out.

    text ─▶ sql_text: statements ─▶ create, alter, show, insert, row_edits, extensions, query: plans
                                          │ run(session)
         verbs of Catalog and Table ◀─────┴─────▶ query ─▶ push_down ─▶ an engine: duckdb_engine, or Spark

All statements of a text are read before the first one is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sqlglot import exp

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arguments import reading
from freshet.storage.sql.alter import plan_alter_database, plan_alter_table, plan_comment
from freshet.storage.sql.column_types import type_text
from freshet.storage.sql.create import plan_create_database, plan_create_table, plan_drop, plan_truncate
from freshet.storage.sql.duckdb_engine import DuckDbEngine
from freshet.storage.sql.extensions import plan_call, plan_tag
from freshet.storage.sql.insert import plan_insert
from freshet.storage.sql.query import plan_query
from freshet.storage.sql.refusals import cut, refused, wrong
from freshet.storage.sql.refused_statements import refuse_known
from freshet.storage.sql.result import Rows, SqlResult
from freshet.storage.sql.row_edits import plan_delete, plan_merge, plan_update
from freshet.storage.sql.session import Plan, Query, QueryEngine, SqlSession, TableRead
from freshet.storage.sql.show import plan_describe, plan_describe_database, plan_show
from freshet.storage.sql.sql_text import Statement, Words, statements

__all__ = [
    "DuckDbEngine",
    "Query",
    "QueryEngine",
    "Rows",
    "SqlResult",
    "SqlSession",
    "TableRead",
    "run_all",
    "run_one",
    "type_text",
]
"""What runs statements, what an engine of queries takes and gives, and how types are written."""


_DATABASES: Final = ("DATABASE", "SCHEMA", "NAMESPACE")
_OF_WORDS: Final[tuple[tuple[tuple[Any, ...], Callable[[Words], Plan]], ...]] = (
    (("CREATE", _DATABASES), plan_create_database),
    (("ALTER", _DATABASES), plan_alter_database),
    ((("DESCRIBE", "DESC"), _DATABASES), plan_describe_database),
    (("SHOW",), plan_show),
    (("CALL",), plan_call),
)
_OF_TREES: Final[Mapping[type[exp.Expr], Callable[[Any], Plan]]] = {
    exp.Create: plan_create_table,
    exp.Drop: plan_drop,
    exp.TruncateTable: plan_truncate,
    exp.Comment: plan_comment,
    exp.Describe: plan_describe,
    exp.Insert: plan_insert,
    exp.Delete: plan_delete,
    exp.Update: plan_update,
    exp.Merge: plan_merge,
}
_EDIT_WORDS: Final = "DELETE, UPDATE, MERGE, INSERT OVERWRITE, TRUNCATE, DROP and ALTER TABLE … DROP PARTITION"
_FIRST_WORDS: Final = frozenset(
    {"CREATE", "DROP", "TRUNCATE", "COMMENT", "DESCRIBE", "DESC", "INSERT", "DELETE", "UPDATE", "MERGE"}
    | {"WITH", "SELECT", "FROM", "VALUES", "("}
)


def run_one(text: str, session: SqlSession) -> SqlResult:
    """The result of a text that is one statement; `InvalidRequestError` names the part that cannot be carried out."""
    found = statements(text)
    if len(found) != 1:
        raise InvalidRequestError(
            f"the SQL has {len(found)} statements; give one at a time" if found else "the SQL has no statement"
        )
    return plan(found[0]).run(session)


def run_all(text: str, session: SqlSession) -> Iterator[tuple[str, SqlResult]]:
    """Each statement of a text with its result, one after the other; all are read before the first one is run."""
    plans = [(each.text, plan(each)) for each in statements(text)]
    if not plans:
        raise InvalidRequestError("the SQL has no statement")
    if session.dry_run:
        for statement, each in plans:
            if not each.has_dry_run:
                raise wrong(statement, f"a dry run is of {_EDIT_WORDS}")
    return ((statement, each.run(session)) for statement, each in plans)


def plan(statement: Statement) -> Plan:
    """The plan of a statement."""
    with reading(f"the SQL {cut(statement.text)!r}"):
        return _plan(statement)


def _plan(statement: Statement) -> Plan:
    refuse_known(statement)
    for start, planned in _OF_WORDS:
        if statement.starts_with(*start):
            return planned(Words(statement))
    if statement.starts_with("ALTER", "TABLE"):
        return plan_tag(Words(statement)) or plan_alter_table(statement)
    if statement.tokens[0].text.upper() not in _FIRST_WORDS:
        raise refused(statement.text)
    tree = statement.tree()
    return _OF_TREES.get(type(tree), plan_query)(tree)
