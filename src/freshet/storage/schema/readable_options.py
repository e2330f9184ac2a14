"""The options of a table as its readers need them."""

from __future__ import annotations

from collections.abc import Mapping

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.refusal import Access
from freshet.storage.options.supported import check_access


def readable_options(schema: TableSchema, location: str, options: Mapping[str, str] | None = None) -> CoreOptions:
    """The schema's options, or these in their place; raises `UnsupportedFeatureError` where the table cannot be read
    rightly, `InvalidRequestError` where a value is none that an option may have."""
    try:
        parsed = CoreOptions.parse(
            schema.options if options is None else options,
            has_primary_key=schema.has_primary_key,
            schema_version=schema.version,
            strict=False,
        )
    except InvalidRequestError as error:
        raise error.reworded(f"table {location}: {error}", table=location) from error
    check_access(parsed, Access.READ, location)
    return parsed
