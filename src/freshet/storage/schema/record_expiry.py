"""Which column says how old a row is, where rows of a keyed table expire (`record-level.expire-time`)."""

from __future__ import annotations

from typing import Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import TIMESTAMP_ROOTS, TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions

TIME_ROOTS: Final = frozenset({TypeRoot.INT, TypeRoot.BIGINT, *TIMESTAMP_ROOTS})
_FIELD: Final = "record-level.time-field"
_EXPIRE: Final = "record-level.expire-time"


def time_column(schema: TableSchema, options: CoreOptions) -> str | None:
    """Name of the column; None where rows do not expire.

    Raises `InvalidRequestError` where there is none, or one of another type.
    """
    if options.record_level_expire_time_ms is None or not schema.has_primary_key:
        return None
    name = options.record_level_time_field
    if not name:
        raise InvalidRequestError(
            f"{_EXPIRE} needs the column that says how old a row is; set {_FIELD} to a column of type INT, BIGINT, "
            f"TIMESTAMP or TIMESTAMP_LTZ, or remove {_EXPIRE}",
            option=_FIELD,
        )
    if name not in schema.by_name:
        raise InvalidRequestError(
            f"{_FIELD} names column {name!r}, which the table does not have; its columns are "
            f"{', '.join(schema.column_names)}",
            option=_FIELD,
            column=name,
        )
    kind = schema.by_name[name].type
    if kind.root not in TIME_ROOTS:
        raise InvalidRequestError(
            f"{_FIELD} names column {name} of type {kind}, which is no time; choose one of type INT, BIGINT, TIMESTAMP "
            "or TIMESTAMP_LTZ",
            option=_FIELD,
            column=name,
        )
    return name
