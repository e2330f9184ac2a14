"""SHOW: lists of databases, tables, columns, partitions and options, and the statement that would create a table.

A pattern of LIKE is Spark's: `*` stands for anything, `|` parts alternatives, case does not matter. Secrets are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
from sqlglot import exp

from freshet.storage.maintenance.partition_choice import live_partitions
from freshet.storage.model.data_type import DataField
from freshet.storage.options.secrets import shown_options
from freshet.storage.sql.column_types import type_text
from freshet.storage.sql.names import SqlName
from freshet.storage.sql.partitions import by_keys
from freshet.storage.sql.refusals import wrong
from freshet.storage.sql.result import SqlResult, given
from freshet.storage.sql.session import SqlSession
from freshet.storage.sql.tag_statements import ShowTags
from freshet.storage.sql.words import Value, Words, text_of
from freshet.storage.system_tables.value_texts import PartitionTexts

_DATABASES: Final = ("DATABASES", "SCHEMAS", "NAMESPACES")


@dataclass(frozen=True)
class ShowDatabases:
    """SHOW DATABASES."""

    pattern: str | None

    def run(self, session: SqlSession) -> SqlResult:
        """Their names."""
        return given({"namespace": _like(session.catalog.list_databases(), self.pattern)})


@dataclass(frozen=True)
class ShowTables:
    """SHOW TABLES."""

    database: SqlName | None
    pattern: str | None

    def run(self, session: SqlSession) -> SqlResult:
        """Their names, with their database."""
        database = self.database or (SqlName(session.database) if session.database is not None else None)
        if database is None:
            raise wrong("SHOW TABLES", "say of which database: SHOW TABLES IN shop, or give database=")
        names = _like(session.catalog_of(database).list_tables(database.name), self.pattern)
        return given(
            {"namespace": [database.name] * len(names), "tableName": names, "isTemporary": [False] * len(names)},
            {"isTemporary": pa.bool_()},
        )


@dataclass(frozen=True)
class ShowPartitions:
    """SHOW PARTITIONS, all or those that have some values."""

    name: SqlName
    values: tuple[tuple[str, str | None], ...] = ()

    def run(self, session: SqlSession) -> SqlResult:
        """Their names, as folders have them."""
        table = session.table(self.name)
        keys = table.schema.partition_keys
        if not keys:
            raise wrong(str(self.name), "the table is not partitioned")
        wanted = by_keys(table, dict(self.values))
        if not wanted:
            names = table.system("partitions").scan(["partition"]).to_arrow().column("partition").to_pylist()
            return given({"partition": names})
        found = PartitionTexts(table.store).as_folders(live_partitions(table.store, wanted))
        return given({"partition": sorted(found.to_pylist())})


@dataclass(frozen=True)
class ShowOptions:
    """SHOW TBLPROPERTIES, all or one."""

    name: SqlName
    key: str | None

    def run(self, session: SqlSession) -> SqlResult:
        """Keys and values that the table has; the primary key is among them, as CREATE TABLE writes it."""
        schema = session.table(self.name).schema
        options = dict(shown_options(schema.options))
        if schema.primary_keys:
            options["primary-key"] = ",".join(schema.primary_keys)
        if self.key is not None:
            if self.key not in options:
                raise wrong(
                    self.key, f"table {self.name} does not have this option; it has {', '.join(sorted(options))}"
                )
            options = {self.key: options[self.key]}
        keys = sorted(options)
        return given({"key": keys, "value": [options[key] for key in keys]})


@dataclass(frozen=True)
class ShowColumns:
    """SHOW COLUMNS."""

    name: SqlName

    def run(self, session: SqlSession) -> SqlResult:
        """Their names, in order; of system tables, too."""
        return given({"col_name": session.readable(self.name)[2].arrow_schema.names})


@dataclass(frozen=True)
class ShowCreate:
    """SHOW CREATE TABLE."""

    name: SqlName

    def run(self, session: SqlSession) -> SqlResult:
        """The statement, in one row."""
        table, identifier = session.table(self.name), session.place(self.name)[1]
        schema = table.schema
        options = dict(shown_options(schema.options))
        if schema.primary_keys:
            options["primary-key"] = ",".join(schema.primary_keys)
        lines = ",\n".join(f"  {_column_text(field)}" for field in schema.fields)
        text = f"CREATE TABLE {'.'.join(map(_quoted, identifier.split('.', 1)))} (\n{lines})"
        if schema.partition_keys:
            text += f"\nPARTITIONED BY ({', '.join(map(_quoted, schema.partition_keys))})"
        if schema.comment:
            text += f"\nCOMMENT {_text(schema.comment)}"
        if options:
            pairs = ",\n".join(f"  {_text(key)} = {_text(options[key])}" for key in sorted(options))
            text += f"\nTBLPROPERTIES (\n{pairs})"
        return given({"createtab_stmt": [text]})


ShowPlan = ShowDatabases | ShowTables | ShowPartitions | ShowOptions | ShowColumns | ShowCreate | ShowTags


def plan_show(words: Words) -> ShowPlan:
    """The plan of SHOW."""
    words.expect("SHOW")
    plan = _plan(words)
    words.end()
    return plan


def _plan(words: Words) -> ShowPlan:
    if words.accept_one(*_DATABASES):
        return ShowDatabases(_pattern(words))
    if words.accept("TABLES"):
        database = words.dotted().as_database() if words.accept_one("IN", "FROM") else None
        return ShowTables(database, _pattern(words))
    if words.accept("CREATE", "TABLE"):
        return ShowCreate(words.dotted())
    if words.accept("PARTITIONS"):
        name = words.dotted()
        return ShowPartitions(name, _values(words) if words.accept("PARTITION") else ())
    if words.accept("TAGS"):
        return ShowTags(words.dotted())
    if words.accept("TBLPROPERTIES"):
        name, key = words.dotted(), None
        if words.accept("("):
            key = words.key()
            words.expect(")")
        return ShowOptions(name, key)
    if words.accept("COLUMNS"):
        if not words.accept_one("IN", "FROM"):
            raise words.unexpected("IN and a table are expected there")
        name = words.dotted()
        if words.accept_one("IN", "FROM"):
            name = SqlName(name.name, words.dotted().as_database().name, name.catalog)
        return ShowColumns(name)
    raise words.unexpected(
        "SHOW lists DATABASES, TABLES, COLUMNS IN, PARTITIONS, TBLPROPERTIES, TAGS, and shows CREATE TABLE; snapshots, "
        "files and more are system tables: SELECT * FROM t$snapshots"
    )


def _values(words: Words) -> tuple[tuple[str, str | None], ...]:
    found: list[tuple[str, str | None]] = []
    words.expect("(")
    while True:
        key = words.name()
        words.expect("=")
        value: Value = words.value()
        found.append((key, None if value is None else text_of(value)))
        if not words.accept(","):
            break
    words.expect(")")
    return tuple(found)


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
