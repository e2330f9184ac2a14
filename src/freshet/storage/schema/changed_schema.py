"""What changes make of a schema: a pure function from schema to schema.

| change | allowed when | existing files |
|---|---|---|
| AddColumn | the type is nullable, the name is free | read as null |
| DropColumn | no key column, no option names it, one column remains | the column is passed over, its id stays used |
| RenameColumn | no partition column | found by field id; options and keys that name it are rewritten |
| ChangeType | no key column, the cast exists, stored rows allow it | cast while reading |
| SetNullable | NULL -> NOT NULL only where the table's option allows it | unchanged |
| SetDefault | the value can be cast to the type | unchanged: a default is written, not read |
| MoveColumn | always | unchanged |
| SetOption, ResetOption | the option may change once the table holds snapshots | unchanged |
| SetBucketCount | a rescale makes it, from one fixed number to another, and rewrites the partitions next | unchanged |
| SetComment, SetColumnComment | always | unchanged |
| DropPrimaryKey | nothing was committed | there are none |

Fields inside of columns are changed in the same way (`nested_change`).

Source: FORMAT.md §2.4, §13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from freshet.storage.casts.casts import can_cast, possible_loss
from freshet.storage.casts.evolution import keeps_bounds
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField, DataType, ScalarType, TypeRoot, with_nullable
from freshet.storage.model.schema import TableSchema, assign_ids
from freshet.storage.model.sql_type import column_type
from freshet.storage.options.choices import DYNAMIC_BUCKET
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declaration import IMMUTABLE_KEYS
from freshet.storage.options.named_columns import columns_named, with_names
from freshet.storage.options.values import option_text
from freshet.storage.schema.change import (
    AddColumn,
    ChangeType,
    DropColumn,
    DropPrimaryKey,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetBucketCount,
    SetColumnComment,
    SetComment,
    SetDefault,
    SetNullable,
    SetOption,
)
from freshet.storage.schema.nested_change import Place, apply_nested, path_of, put, with_ids

_DEFAULT_BUCKET: Final = str(DYNAMIC_BUCKET)

_VARYING: Final = (TypeRoot.VARCHAR, TypeRoot.VARBINARY)
_GROUP_PREFIX: Final = "fields."
_GROUP_SUFFIX: Final = ".sequence-group"


def apply_changes(
    schema: TableSchema,
    changes: Sequence[SchemaChange],
    *,
    has_snapshot: bool,
    time_ms: int,
    allow_lossy: bool = False,
) -> TableSchema:
    """The schema after the changes, one id higher. Raises `InvalidRequestError` naming the change that is refused.

    `has_snapshot` says that there may be rows; `allow_lossy` that they may lose values to a change of type.
    """
    if not changes:
        raise InvalidRequestError("name at least one change, such as AddColumn('note', 'STRING')")
    result = schema
    for change in changes:
        if not isinstance(change, SchemaChange):
            raise InvalidRequestError(
                f"{change!r} is not a change of a table; changes are AddColumn('note', 'STRING'), "
                "SetOption('write-only', 'true') and the like"
            )
        result = _apply(result, change, has_snapshot=has_snapshot, allow_lossy=allow_lossy)
    return replace(result, id=schema.id + 1, time_ms=time_ms)


def _apply(schema: TableSchema, change: SchemaChange, *, has_snapshot: bool, allow_lossy: bool) -> TableSchema:
    match change:
        case SetOption(key, value):
            return _set_option(schema, key, option_text(value), has_snapshot)
        case ResetOption(key):
            return _set_option(schema, key, None, has_snapshot)
        case SetBucketCount(count):
            return _set_option(schema, "bucket", str(count), has_snapshot=False)
        case SetComment(comment):
            return replace(schema, comment=comment)
        case DropPrimaryKey():
            return _without_primary_key(schema, has_snapshot=has_snapshot)
        case SetDefault(name, value):
            return _set_default(schema, name, value)
        case MoveColumn(name):
            column = _column(schema, name, "move")
            rest = tuple(field for field in schema.fields if field.name != name)
            return replace(schema, fields=put(rest, column, Place.of(change)))
    if change.within:
        name = path_of(change)[0]
        _column(schema, name, "change a field of")
        _refuse_keys(schema, name, "change a field of")
        return apply_nested(schema, change, has_snapshot=has_snapshot, allow_lossy=allow_lossy)
    match change:
        case AddColumn():
            return _add(schema, change)
        case DropColumn(name):
            return _drop(schema, name)
        case RenameColumn(name, new_name):
            return _rename(schema, name, new_name)
        case ChangeType(name, data_type):
            target = column_type(name, data_type)
            return _retype(schema, name, target, has_snapshot=has_snapshot, allow_lossy=allow_lossy)
        case SetNullable(name, nullable):
            return _set_nullable(schema, name, nullable)
        case SetColumnComment(name, text):
            return _replace_column(schema, replace(_column(schema, name, "comment on"), description=text))


def _add(schema: TableSchema, change: AddColumn) -> TableSchema:
    name, data_type = change.name, column_type(change.name, change.type)
    if name in schema.by_name:
        raise InvalidRequestError(f"cannot add column {name!r}: the table has one of that name", column=name)
    if not data_type.nullable:
        raise InvalidRequestError(
            f"cannot add column {name!r} as NOT NULL: existing rows have no value for it; leave NOT NULL out",
            column=name,
        )
    bare = DataField(0, name, data_type, change.comment)
    (column,), highest = assign_ids([bare], schema.highest_field_id + 1)
    place = Place.of(change)
    if not place.is_given and _goes_before_partition(schema):
        first_key = next(each for each in schema.column_names if each in schema.partition_keys)
        place = Place(before=first_key)
    return replace(schema, fields=put(schema.fields, column, place), highest_field_id=highest)


def _goes_before_partition(schema: TableSchema) -> bool:
    return bool(schema.partition_keys) and CoreOptions.add_column_before_partition.of(schema.options)


def _drop(schema: TableSchema, name: str) -> TableSchema:
    _column(schema, name, "drop")
    _refuse_keys(schema, name, "drop")
    rest = tuple(field for field in schema.fields if field.name != name)
    if not rest:
        raise InvalidRequestError(f"cannot drop column {name!r}: it is the only one", column=name)
    users = [key for key, value in schema.options.items() if name in columns_named(key, value, schema.by_name)]
    if users:
        raise InvalidRequestError(
            f"cannot drop column {name!r}: option {users[0]!r} names it; reset the option first",
            column=name,
            option=users[0],
        )
    return replace(schema, fields=rest)


def _rename(schema: TableSchema, name: str, new_name: str) -> TableSchema:
    column = _column(schema, name, "rename")
    if name in schema.partition_keys:
        raise InvalidRequestError(
            f"cannot rename column {name!r}: it is a partition key, folders carry its name", column=name
        )
    if new_name in schema.by_name:
        raise InvalidRequestError(f"cannot rename column {name!r}: the table has a column {new_name!r}", column=name)
    renamed = replace(column, name=new_name)
    fields = tuple(renamed if field.name == name else field for field in schema.fields)
    keys = tuple(new_name if key == name else key for key in schema.primary_keys)

    def new(given: str) -> str:
        return new_name if given == name else given

    options = dict(with_names(key, value, schema.by_name, new) for key, value in schema.options.items())
    return replace(schema, fields=fields, primary_keys=keys, options=options)


def _retype(schema: TableSchema, name: str, target: DataType, *, has_snapshot: bool, allow_lossy: bool) -> TableSchema:
    column = _column(schema, name, "change the type of")
    _refuse_keys(schema, name, "change the type of")
    target, highest = with_ids(column.type, with_nullable(target, column.type.nullable), schema.highest_field_id)
    is_implicit = CoreOptions.explicit_type_casting_disabled.of(schema.options)
    if not can_cast(column.type, target, explicit=not is_implicit):
        raise InvalidRequestError(
            f"cannot change column {name!r} from {column.type} to {target}: existing values cannot be cast; "
            f"add a new column instead",
            column=name,
        )
    if has_snapshot:
        _check_stored_rows(schema, column, target, allow_lossy=allow_lossy)
    return replace(_replace_column(schema, replace(column, type=target)), highest_field_id=highest)


def _set_nullable(schema: TableSchema, name: str, nullable: bool) -> TableSchema:
    column = _column(schema, name, "change")
    if nullable and name in schema.primary_keys:
        raise InvalidRequestError(f"cannot make column {name!r} nullable: it belongs to the primary key", column=name)
    forbidden = CoreOptions.null_to_not_null_disabled.of(schema.options)
    if column.type.nullable and not nullable and forbidden:
        raise InvalidRequestError(
            f"cannot make column {name!r} NOT NULL: existing rows may hold nulls; set "
            f"'alter-column-null-to-not-null.disabled' = 'false' if you know that they do not",
            column=name,
        )
    return _replace_column(schema, replace(column, type=with_nullable(column.type, nullable)))


def _check_bucket(old: str, value: str) -> None:
    if old != value:
        raise InvalidRequestError(
            f"option 'bucket' cannot change from {old!r} to {value!r}: the rows of the table lie in the buckets that "
            "they were written to. From one fixed number to another: Table.rescale, or freshet rescale WAREHOUSE TABLE "
            "--bucket N, which moves them; otherwise create another table and copy the rows",
            option="bucket",
        )


def _set_option(schema: TableSchema, key: str, value: str | None, has_snapshot: bool) -> TableSchema:
    old = schema.options.get(key)
    if old == value:
        return schema
    if key in IMMUTABLE_KEYS and has_snapshot:
        raise InvalidRequestError(
            f"option {key!r} cannot change from {old!r} to {value!r}: files written already depend on it; "
            f"create another table and copy the rows",
            option=key,
        )
    if key == "bucket" and has_snapshot:
        _check_bucket(old or _DEFAULT_BUCKET, value or _DEFAULT_BUCKET)
    options = {name: text for name, text in schema.options.items() if name != key}
    if value is not None:
        options[key] = value
    return replace(schema, options=options)


def _column(schema: TableSchema, name: str, verb: str) -> DataField:
    if name not in schema.by_name:
        raise InvalidRequestError(
            f"cannot {verb} column {name!r}: no such column; there are {', '.join(schema.column_names)}", column=name
        )
    return schema.by_name[name]


def _refuse_keys(schema: TableSchema, name: str, verb: str) -> None:
    if name in schema.partition_keys:
        raise InvalidRequestError(f"cannot {verb} column {name!r}: it is a partition key", column=name)
    if name in schema.primary_keys:
        raise InvalidRequestError(f"cannot {verb} column {name!r}: it belongs to the primary key", column=name)


def _replace_column(schema: TableSchema, column: DataField) -> TableSchema:
    return replace(schema, fields=tuple(column if field.name == column.name else field for field in schema.fields))


def _set_default(schema: TableSchema, name: str, value: str | None) -> TableSchema:
    column = _column(schema, name, "set the default of")
    text = None if value is None else option_text(value)
    if text is not None:
        try:
            pa.array([text], pa.string()).cast(arrow_type(column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequestError(
                f"cannot set the default of column {name!r} to {text!r}, which is no {column.type}: {error}",
                column=name,
            ) from error
    return _replace_column(schema, replace(column, default_value=text))


def _without_primary_key(schema: TableSchema, *, has_snapshot: bool) -> TableSchema:
    if has_snapshot:
        raise InvalidRequestError(
            "cannot drop the primary key of a table that holds snapshots: its files are sorted and merged by it; "
            "create another table and copy the rows"
        )
    return replace(schema, primary_keys=())


def _check_stored_rows(schema: TableSchema, column: DataField, target: DataType, *, allow_lossy: bool) -> None:
    """The check whether the rows that a table holds allow another type of a column. Raises `InvalidRequestError` where
    rows written with the old type forbid the new one; `target` has the nullability of the column.

    | column | refused | because |
    |---|---|---|
    | of the bucket key | every change but to longer text or bytes | rows would be looked for in other buckets |
    | of `sequence.field`, or ordering a sequence group | a change of their order | older rows could win for good |
    | any | a change that can lose or break values, unless that is allowed | readers cast without complaint |

    Apache Paimon 2.0 makes all of these changes: then lookups by key miss rows, and an older row wins over a newer one.
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
