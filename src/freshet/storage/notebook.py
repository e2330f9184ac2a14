"""What a notebook shows of a table: its columns, keys, options and latest snapshot, from two small files at most."""

from __future__ import annotations

from typing import Final

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.display import time_text
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.shown import Facts, facts_html, rows_html
from freshet.storage.options.secrets import shown_options, shown_text

COLUMNS_MAX: Final = 200


def table_html(store: TableStore) -> str:
    """The page; where the table is gone it says so. Reads the schema that is there and the newest snapshot."""
    store.check_is_there()
    schema = store.schema
    return facts_html(f"Table {store.name}", _facts(store), _columns(schema), _options(schema))


def _facts(store: TableStore) -> Facts:
    schema, latest = store.schema, store.snapshots.latest()
    yield ("primary key", ", ".join(schema.primary_keys) or "none: rows are appended")
    yield ("partitioned by", ", ".join(schema.partition_keys))
    yield from (("comment", schema.comment), ("location", shown_text(store.location)), ("schema", str(schema.id)))
    if latest is None:
        yield ("snapshot", "none: nothing was committed")
        return
    yield ("snapshot", f"{latest.id}: {latest.commit_kind} by {latest.commit_user} at {time_text(latest.time_ms)}")
    yield ("records", latest.total_record_count)


def _columns(schema: TableSchema) -> str:
    rows = [
        (field.name, str(field.type), _role(schema, field.name), field.description or "")
        for field in schema.fields[:COLUMNS_MAX]
    ]
    left_out = None if len(schema.fields) <= COLUMNS_MAX else f"{COLUMNS_MAX} of {len(schema.fields)} columns"
    return rows_html(("column", "type", "key", "comment"), rows, left_out=left_out)


def _role(schema: TableSchema, name: str) -> str:
    roles = (("primary key", schema.primary_keys), ("partition", schema.partition_keys))
    return ", ".join(role for role, names in roles if name in names)


def _options(schema: TableSchema) -> str:
    rows = sorted(shown_options(schema.options).items())
    return rows_html(("option", "value"), rows) if rows else ""
