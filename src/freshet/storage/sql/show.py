"""SHOW and DESCRIBE.

DESCRIBE of tables, system tables and databases, with the columns of Spark.

SHOW: lists of databases, tables, columns, partitions and options, and the statement that would create a table.

A pattern of LIKE is Spark's: `*` stands for anything, `|` parts alternatives, case does not matter. Secrets are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
from sqlglot import exp

from freshet.storage.maintenance.partition_choice import live_partitions
from freshet.storage.model.data_type import DataField
from freshet.storage.model.display import time_text
from freshet.storage.options.secrets import shown_options, shown_text
from freshet.storage.sql.column_types import type_text
from freshet.storage.sql.extensions import plan_show_tags
from freshet.storage.sql.names import PartitionValues, SqlName, by_keys, table_name
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.result import SqlResult, given
from freshet.storage.sql.session import Plan, SqlSession
from freshet.storage.sql.sql_text import Value, Words, text_of
from freshet.storage.system_tables.system_table import SystemTable
from freshet.storage.system_tables.value_texts import PartitionTexts

if TYPE_CHECKING:
    from freshet.storage.table import Table


Row = tuple[str, str, str | None]
_BLANK: Final[Row] = ("", "", "")


def _described(name: SqlName, is_extended: bool, session: SqlSession) -> SqlResult:
    """Columns with types and comments; then partition keys, and what else there is to say."""
    _, identifier, table = session.readable(name)
    fields = table.scan().fields if isinstance(table, SystemTable) else table.schema.fields
    rows: list[Row] = [
        (each.name, type_text(each.type) + ("" if each.type.nullable else " NOT NULL"), each.description)
        for each in fields
    ]
    if not isinstance(table, SystemTable):
        keys = table.schema.partition_keys
        if keys:
            rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
            rows += [row for key in keys for row in rows[: len(fields)] if row[0] == key]
        if is_extended:
            rows += [_BLANK, ("# Detailed Table Information", "", ""), *_details(table, identifier)]
    return given(
        {
            "col_name": [row[0] for row in rows],
            "data_type": [row[1] for row in rows],
            "comment": [row[2] for row in rows],
        }
    )


def _details(table: Table, identifier: str) -> list[Row]:
    schema, latest = table.schema, table.latest_snapshot()
    options = shown_options(schema.options)
    facts = {
        "Name": identifier,
        "Comment": schema.comment,
        "Location": shown_text(table.location),
        "Schema": str(schema.id),
        "Primary Keys": ", ".join(schema.primary_keys) or None,
        "Table Properties": f"[{','.join(f'{key}={options[key]}' for key in sorted(options))}]",
        "Snapshot": None if latest is None else f"{latest.id}, {time_text(latest.time_ms)}",
        "Provider": "paimon",
    }
    return [(name, text, "") for name, text in facts.items() if text is not None]


def _described_database(name: SqlName, session: SqlSession) -> SqlResult:
    """Its name, and the properties that the catalog keeps."""
    catalog = session.catalog_of(name)
    properties = shown_options(catalog.database_properties(name.name))
    rows = {"Namespace Name": name.name, "Catalog": shown_text(catalog.warehouse), **properties}
    return given({"info_name": list(rows), "info_value": list(rows.values())})


def plan_describe_database(words: Words) -> Plan:
    """The plan of DESCRIBE DATABASE."""
    words.accept_one("DESCRIBE", "DESC")
    words.accept_one("DATABASE", "SCHEMA", "NAMESPACE")
    words.accept("EXTENDED")
    name = words.dotted().as_database()
    words.end()
    return Plan(partial(_described_database, name))


def plan_describe(tree: exp.Describe) -> Plan:
    """The plan of DESCRIBE of a table; refuses everything else that Spark describes."""
    if tree.args.get("partition"):
        raise refused(tree.args["partition"], "SELECT * FROM t$partitions has what there is to say of each")
    only(tree, "this", "style", "kind")
    style = str(tree.args.get("style") or "")
    if tree.args.get("kind") not in (None, "TABLE") or style not in ("", "EXTENDED", "FORMATTED"):
        raise refused(tree)
    return Plan(partial(_described, table_name(tree.this), bool(style)))


_DATABASES: Final = ("DATABASES", "SCHEMAS", "NAMESPACES")


def _databases(pattern: str | None, session: SqlSession) -> SqlResult:
    return given({"namespace": _like(session.catalog.list_databases(), pattern)})


def _tables(database: SqlName | None, pattern: str | None, session: SqlSession) -> SqlResult:
    database = database or (SqlName(session.database) if session.database is not None else None)
    if database is None:
        raise wrong("SHOW TABLES", "say of which database: SHOW TABLES IN shop, or give database=")
    names = _like(session.catalog_of(database).list_tables(database.name), pattern)
    return given(
        {"namespace": [database.name] * len(names), "tableName": names, "isTemporary": [False] * len(names)},
        {"isTemporary": pa.bool_()},
    )


def _partitions(name: SqlName, values: PartitionValues, session: SqlSession) -> SqlResult:
    """The partitions that have some values, as folders are named after them; without values all."""
    table = session.table(name)
    if not table.schema.partition_keys:
        raise wrong(str(name), "the table is not partitioned")
    wanted = by_keys(table, values)
    if not wanted:
        names = table.system("partitions").scan(["partition"]).to_arrow().column("partition").to_pylist()
        return given({"partition": names})
    found = PartitionTexts(table.store).as_folders(live_partitions(table.store, wanted))
    return given({"partition": sorted(found.to_pylist())})


def _options(name: SqlName, key: str | None, session: SqlSession) -> SqlResult:
    options = _written_options(session.table(name))
    if key is not None:
        if key not in options:
            raise wrong(key, f"table {name} does not have this option; it has {', '.join(options)}")
        options = {key: options[key]}
    return given({"key": list(options), "value": list(options.values())})


def _written_options(table: Table) -> dict[str, str]:
    """Options that the table has, by key; the primary key is among them, as CREATE TABLE writes it."""
    options = dict(shown_options(table.schema.options))
    if table.schema.primary_keys:
        options["primary-key"] = ",".join(table.schema.primary_keys)
    return dict(sorted(options.items()))


def _column_names(name: SqlName, session: SqlSession) -> SqlResult:
    return given({"col_name": session.readable(name)[2].arrow_schema.names})


def _create_statement(name: SqlName, session: SqlSession) -> SqlResult:
    table, identifier = session.table(name), session.place(name)[1]
    schema, options = table.schema, _written_options(table)
    lines = ",\n".join(f"  {_column_text(field)}" for field in schema.fields)
    text = f"CREATE TABLE {'.'.join(map(_quoted, identifier.split('.', 1)))} (\n{lines})"
    if schema.partition_keys:
        text += f"\nPARTITIONED BY ({', '.join(map(_quoted, schema.partition_keys))})"
    if schema.comment:
        text += f"\nCOMMENT {_text(schema.comment)}"
    if options:
        pairs = ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in options.items())
        text += f"\nTBLPROPERTIES (\n{pairs})"
    return given({"createtab_stmt": [text]})


def plan_show(words: Words) -> Plan:
    """The plan of SHOW."""
    words.expect("SHOW")
    plan = _plan(words)
    words.end()
    return plan


def _plan(words: Words) -> Plan:
    if words.accept_one(*_DATABASES):
        return Plan(partial(_databases, _pattern(words)))
    if words.accept("TABLES"):
        database = words.dotted().as_database() if words.accept_one("IN", "FROM") else None
        return Plan(partial(_tables, database, _pattern(words)))
    if words.accept("CREATE", "TABLE"):
        return Plan(partial(_create_statement, words.dotted()))
    if words.accept("PARTITIONS"):
        name = words.dotted()
        return Plan(partial(_partitions, name, _values(words) if words.accept("PARTITION") else {}))
    if words.accept("TAGS"):
        return plan_show_tags(words.dotted())
    if words.accept("TBLPROPERTIES"):
        name, key = words.dotted(), None
        if words.accept("("):
            key = words.key()
            words.expect(")")
        return Plan(partial(_options, name, key))
    if words.accept("COLUMNS"):
        if not words.accept_one("IN", "FROM"):
            raise words.unexpected("IN and a table are expected there")
        name = words.dotted()
        if words.accept_one("IN", "FROM"):
            name = SqlName(name.name, words.dotted().as_database().name, name.catalog)
        return Plan(partial(_column_names, name))
    raise words.unexpected(
        "SHOW lists DATABASES, TABLES, COLUMNS IN, PARTITIONS, TBLPROPERTIES, TAGS, and shows CREATE TABLE; snapshots, "
        "files and more are system tables: SELECT * FROM t$snapshots"
    )


def _values(words: Words) -> PartitionValues:
    found: dict[str, str | None] = {}
    words.expect("(")
    while True:
        key = words.name()
        words.expect("=")
        value: Value = words.value()
        found[key] = None if value is None else text_of(value)
        if not words.accept(","):
            break
    words.expect(")")
    return found


def _pattern(words: Words) -> str | None:
    if words.accept("LIKE") or words.rest:
        return words.text()
    return None


def _like(names: Sequence[str], pattern: str | None) -> list[str]:
    if pattern is None:
        return list(names)
    parts = (re.escape(part.strip()).replace(r"\*", ".*") for part in pattern.split("|"))
    wanted = re.compile("|".join(f"(?:{part})" for part in parts), re.IGNORECASE | re.DOTALL)
    return [name for name in names if wanted.fullmatch(name)]


def _column_text(field: DataField) -> str:
    null: Literal["", " NOT NULL"] = "" if field.type.nullable else " NOT NULL"
    comment = f" COMMENT {_text(field.description)}" if field.description else ""
    return f"{_quoted(field.name)} {type_text(field.type)}{null}{comment}"


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("spark")


def _text(text: str) -> str:
    return exp.Literal.string(text).sql("spark")
