"""DESCRIBE of tables, system tables and databases, with the columns of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from freshet.storage.model.display import time_text
from freshet.storage.options.secrets import shown_options, shown_text
from freshet.storage.sql.column_types import type_text
from freshet.storage.sql.names import SqlName, table_name
from freshet.storage.sql.refusals import only, refused
from freshet.storage.sql.result import SqlResult, given
from freshet.storage.sql.session import SqlSession
from freshet.storage.sql.words import Words
from freshet.storage.system_tables.system_table import SystemTable

if TYPE_CHECKING:
    from freshet.storage.table import Table

Row = tuple[str, str, str | None]
_BLANK: Final[Row] = ("", "", "")


@dataclass(frozen=True)
class DescribeTable:
    """DESCRIBE [EXTENDED] of a table."""

    name: SqlName
    is_extended: bool

    def run(self, session: SqlSession) -> SqlResult:
        """Columns with types and comments; then partition keys, and what else there is to say."""
        _, identifier, table = session.readable(self.name)
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
            if self.is_extended:
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


@dataclass(frozen=True)
class DescribeDatabase:
    """DESCRIBE DATABASE."""

    name: SqlName

    def run(self, session: SqlSession) -> SqlResult:
        """Its name, and the properties that the catalog keeps."""
        catalog = session.catalog_of(self.name)
        properties = shown_options(catalog.database_properties(self.name.name))
        rows = {"Namespace Name": self.name.name, "Catalog": shown_text(catalog.warehouse), **properties}
        return given({"info_name": list(rows), "info_value": list(rows.values())})


def plan_describe_database(words: Words) -> DescribeDatabase:
    """The plan of DESCRIBE DATABASE."""
    words.accept_one("DESCRIBE", "DESC")
    words.accept_one("DATABASE", "SCHEMA", "NAMESPACE")
    words.accept("EXTENDED")
    name = words.dotted().as_database()
    words.end()
    return DescribeDatabase(name)


def plan_describe(tree: exp.Describe) -> DescribeTable:
    """The plan of DESCRIBE of a table; refuses everything else that Spark describes."""
    if tree.args.get("partition"):
        raise refused(tree.args["partition"], "SELECT * FROM t$partitions has what there is to say of each")
    only(tree, "this", "style", "kind")
    style = str(tree.args.get("style") or "")
    if tree.args.get("kind") not in (None, "TABLE") or style not in ("", "EXTENDED", "FORMATTED"):
        raise refused(tree)
    return DescribeTable(table_name(tree.this), bool(style))
