"""Whether the rows that a table holds allow another type of a column.

| column | refused | because |
|---|---|---|
| of the bucket key | every change but to longer text or bytes | rows would be looked for in other buckets |
| of `sequence.field`, or ordering a sequence group | a change of the order of values | older rows could win for good |
| any | a change that can lose or break values, unless that is allowed | readers cast without complaint |

Apache Paimon 2.0 makes all of these changes: then lookups by key miss rows, and an older row wins over a newer one.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.casts.evolution import keeps_bounds
from freshet.storage.casts.losses import possible_loss
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataField, DataType, ScalarType, TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions

_VARYING: Final = (TypeRoot.VARCHAR, TypeRoot.VARBINARY)
_GROUP_PREFIX: Final = "fields."
_GROUP_SUFFIX: Final = ".sequence-group"


def check_stored_rows(schema: TableSchema, column: DataField, target: DataType, *, allow_lossy: bool) -> None:
    """Raises `InvalidRequestError` where rows written with the old type forbid the new one.

    `target` has the nullability of the column.
    """
    name = column.name
    if target == column.type:
        return
    what = f"cannot change column {name!r} from {column.type} to {target}"
    if name in CoreOptions.bucket_key.of(schema.options) and not _keeps_hash(column.type, target):
        raise InvalidRequestError(
            f"{what}: it belongs to the bucket-key, and rows written already would be looked for in other buckets; "
            "create another table and copy the rows",
            column=name,
            option="bucket-key",
        )
    ordering = _ordering_option(schema, name)
    if ordering is not None and not keeps_bounds(column.type, target):
        raise InvalidRequestError(
            f"{what}: it orders the changes of a key (option {ordering}), and rows written already would be in another "
            "order, so that an older row could win for good; create another table and copy the rows",
            column=name,
            option=ordering,
        )
    loss = possible_loss(column.type, target)
    if loss is not None and not allow_lossy:
        raise InvalidRequestError(
            f"{what}: {loss}; add a new column instead, or allow it with allow_lossy=True (--allow-lossy) if no such "
            "value is stored",
            column=name,
        )


def _keeps_hash(source: DataType, target: DataType) -> bool:
    return (
        isinstance(source, ScalarType)
        and isinstance(target, ScalarType)
        and source.root is target.root
        and source.root in _VARYING
        and (source.length or 0) <= (target.length or 0)
    )


def _ordering_option(schema: TableSchema, name: str) -> str | None:
    """The option that makes a column decide which of two changes is later."""
    if name in CoreOptions.sequence_field.of(schema.options):
        return "sequence.field"
    for key in schema.options:
        is_group = key.startswith(_GROUP_PREFIX) and key.endswith(_GROUP_SUFFIX)
        if is_group and name in key.removeprefix(_GROUP_PREFIX).removesuffix(_GROUP_SUFFIX).split(","):
            return key
    return None
