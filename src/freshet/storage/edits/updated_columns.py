"""The columns that an edit gives values: named as the table names them, and none that would make another row of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import field_of
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema


def checked_columns(store: TableStore, values: Mapping[str, Any], *, is_insert: bool = False) -> dict[str, Any]:
    """The values by the names of the columns; raises `InvalidRequestError` for those that cannot be updated."""
    if not values:
        raise InvalidRequestError(f'name the columns of {store.name} and their values, such as {{"city": "Ulm"}}')
    schema = arrow_schema(store.schema)
    named: dict[str, Any] = {}
    for given, value in values.items():
        name = field_of(given, schema, "values").name
        for which, names in () if is_insert else _fixed(store):
            if name in names:
                raise InvalidRequestError(
                    f"column {name!r} of table {store.name} is {which}: its rows would be others; delete the rows and "
                    "append them with the new value",
                    table=store.name,
                    column=name,
                )
        named[name] = value
    return named


def _fixed(store: TableStore) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("part of the primary key", store.schema.primary_keys),
        ("a partition key", store.schema.partition_keys),
        ("part of the bucket key", store.bucket_key),
    )
