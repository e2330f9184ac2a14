"""`$schemas`: every schema that the table has had, oldest first; columns, keys and options as JSON.

Secrets among the options are hidden, as everywhere.

Source: MERGING.md §6.6; FORMAT.md §2.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import field_to_json
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.secrets import shown_options
from freshet.storage.system_tables.definition import MetadataRows, SystemTableDefinition, columns_of, fields_of

FIELDS: Final = fields_of(
    schema_id="BIGINT NOT NULL",
    fields="STRING NOT NULL",
    partition_keys="STRING NOT NULL",
    primary_keys="STRING NOT NULL",
    options="STRING NOT NULL",
    comment="STRING",
    update_time="TIMESTAMP(3) NOT NULL",
)


def _source(store: TableStore, _snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(FIELDS, lambda: columns_of(FIELDS, _rows(store)))


def _rows(store: TableStore) -> list[tuple[Any, ...]]:
    return [
        (
            schema.id,
            _json([field_to_json(field) for field in schema.fields]),
            _json(list(schema.partition_keys)),
            _json(list(schema.primary_keys)),
            _json(shown_options(schema.options)),
            schema.comment,
            store.env.wall_clock_ms(schema.time_ms),
        )
        for schema in map(store.schemas.schema, store.schemas.list_ids())
    ]


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


SCHEMAS: Final = SystemTableDefinition(
    "schemas", "its schemas, with their options, since it was created", _source, FIELDS
)
