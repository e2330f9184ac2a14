"""Changes of fields inside of columns: of a ROW, also one in an ARRAY or a MAP; and where a new field goes.

    "zip" within "address"                   a field of the ROW `address`
    "price" within ("items", "element")      a field of the rows in the ARRAY `items`
    "value" within "prices"                  the values of the MAP `prices`: their type and whether they may be NULL

Ids of new fields continue those of the table, and are not used again, at any depth.

Source: FORMAT.md §2.2, §13; Apache Paimon 2.0.0, SchemaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from freshet._frozen import Frozen
from freshet.storage.casts.casts import can_cast, possible_loss
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, with_nullable
from freshet.storage.model.schema import TableSchema, assign_ids
from freshet.storage.model.sql_type import column_type
from freshet.storage.options.core import CoreOptions
from freshet.storage.schema.change import (
    AddColumn,
    ChangeType,
    DropColumn,
    InnerChange,
    MoveColumn,
    RenameColumn,
    SetColumnComment,
    SetNullable,
)

ELEMENT: Final = "element"
VALUE: Final = "value"

Fields: TypeAlias = tuple[DataField, ...]


class Place(Frozen):
    """Where a field goes among others; last if nothing is given."""

    first: bool = False
    after: str | None = None
    before: str | None = None
    last: bool = False

    @staticmethod
    def of(change: AddColumn | MoveColumn) -> Place:
        """The place that a change names."""
        return Place(change.first, change.after, change.before, change.last)

    @property
    def is_given(self) -> bool:
        """Whether a place was named."""
        return self.first or self.last or self.after is not None or self.before is not None


def path_of(change: InnerChange) -> tuple[str, ...]:
    """The names on the way to what is changed; one for a column."""
    within = (change.within,) if isinstance(change.within, str) else change.within
    if not isinstance(within, tuple) or not all(isinstance(part, str) for part in within):
        raise InvalidRequestError(f"within= names a column, such as 'address', or the way to a field; got {within!r}")
    return (*within, change.name)


def put(fields: Fields, field: DataField, place: Place) -> Fields:
    """The fields with another one at its place."""
    given = [place.first, place.last, place.after is not None, place.before is not None]
    if sum(given) > 1:
        raise InvalidRequestError(
            f"column {field.name!r}: say one of first, last, after and before, not both", column=field.name
        )
    if place.first:
        return (field, *fields)
    beside = place.after if place.after is not None else place.before
    if beside is None:
        return (*fields, field)
    names = [each.name for each in fields]
    if beside not in names:
        raise InvalidRequestError(
            f"cannot put column {field.name!r} {'after' if place.after is not None else 'before'} {beside!r}: "
            "no such column",
            column=field.name,
        )
    position = names.index(beside) + (1 if place.after is not None else 0)
    return (*fields[:position], field, *fields[position:])


def apply_nested(schema: TableSchema, change: InnerChange, *, has_snapshot: bool, allow_lossy: bool) -> TableSchema:
    """The schema with a field changed, whose path has two names or more.

    Raises `InvalidRequestError` for a path that leads nowhere, and as for columns.
    """
    path = path_of(change)
    shown = ".".join(path)
    match change:
        case AddColumn():
            return _add(schema, path, change)
        case DropColumn():
            return _with_fields(schema, path, lambda fields, name: _dropped(fields, name, shown))
        case RenameColumn(new_name=new_name):
            return _with_fields(schema, path, lambda fields, name: _renamed(fields, name, new_name, shown))
        case ChangeType(type=data_type):
            given, highest = column_type(path[-1], data_type), schema.highest_field_id

            def retyped(field: DataField) -> DataField:
                nonlocal highest
                target, highest = with_ids(field.type, given, highest)
                return _retyped(schema, field, target, shown, checks_loss=has_snapshot and not allow_lossy)

            return replace(_with_field(schema, path, retyped), highest_field_id=highest)
        case SetNullable(nullable=nullable):
            return _with_field(schema, path, lambda field: _nullable(schema, field, nullable, shown))
        case SetColumnComment(comment=comment):
            return _with_field(schema, path, lambda field: replace(field, description=comment))


def with_ids(source: DataType, target: DataType, highest: int) -> tuple[DataType, int]:
    """Another type of a column, whose fields have no ids yet: those that are there keep the ids of their names, others
    get new ones. Also the highest id then. An id that happened to be another field's would give its values."""
    match source, target:
        case RowType(), RowType():
            known = {field.name: field for field in source.fields}
            fields = []
            for field in target.fields:
                before = known.get(field.name)
                if before is None:
                    (found,), highest = assign_ids([field], highest + 1)
                else:
                    inner, highest = with_ids(before.type, field.type, highest)
                    description = before.description if field.description is None else field.description
                    found = replace(field, id=before.id, type=inner, description=description)
                fields.append(found)
            return replace(target, fields=tuple(fields)), highest
        case ArrayType(), ArrayType():
            element, highest = with_ids(source.element, target.element, highest)
            return replace(target, element=element), highest
        case MapType(), MapType():
            key, highest = with_ids(source.key, target.key, highest)
            value, highest = with_ids(source.value, target.value, highest)
            return replace(target, key=key, value=value), highest
    (column,), highest_then = assign_ids([DataField(0, "", target)], highest)
    return column.type, highest_then


def _add(schema: TableSchema, path: tuple[str, ...], change: AddColumn) -> TableSchema:
    shown, data_type = ".".join(path), column_type(path[-1], change.type)
    if not data_type.nullable:
        raise InvalidRequestError(
            f"cannot add {shown} as NOT NULL: existing rows have no value for it; leave NOT NULL out", column=path[0]
        )
    bare = DataField(0, path[-1], data_type, change.comment)
    (field,), highest = assign_ids([bare], schema.highest_field_id + 1)

    def added(fields: Fields, name: str) -> Fields:
        if any(each.name == name for each in fields):
            raise InvalidRequestError(f"cannot add {shown}: there is one of that name", column=path[0])
        return put(fields, field, Place.of(change))

    return replace(_with_fields(schema, path, added), highest_field_id=highest)


def _dropped(fields: Fields, name: str, shown: str) -> Fields:
    _found(fields, name, shown)
    rest = tuple(each for each in fields if each.name != name)
    if not rest:
        raise InvalidRequestError(f"cannot drop {shown}: it is the only field of its ROW; drop the column")
    return rest


def _renamed(fields: Fields, name: str, new_name: str, shown: str) -> Fields:
    field = _found(fields, name, shown)
    if any(each.name == new_name for each in fields):
        raise InvalidRequestError(f"cannot rename {shown}: there is a field {new_name!r} beside it")
    return tuple(replace(each, name=new_name) if each is field else each for each in fields)


def _retyped(schema: TableSchema, field: DataField, target: DataType, shown: str, *, checks_loss: bool) -> DataField:
    target = with_nullable(target, field.type.nullable)
    is_implicit = CoreOptions.explicit_type_casting_disabled.of(schema.options)
    what = f"cannot change {shown} from {field.type} to {target}"
    if not can_cast(field.type, target, explicit=not is_implicit):
        raise InvalidRequestError(f"{what}: existing values cannot be cast; add a new field instead")
    loss = possible_loss(field.type, target) if checks_loss else None
    if loss is not None:
        raise InvalidRequestError(
            f"{what}: {loss}; add a new field instead, or allow it with allow_lossy=True (--allow-lossy) if no such "
            "value is stored"
        )
    return replace(field, type=target)


def _nullable(schema: TableSchema, field: DataField, nullable: bool, shown: str) -> DataField:
    if field.type.nullable and not nullable and CoreOptions.null_to_not_null_disabled.of(schema.options):
        raise InvalidRequestError(
            f"cannot make {shown} NOT NULL: existing rows may hold nulls; set "
            "'alter-column-null-to-not-null.disabled' = 'false' if you know that they do not"
        )
    return replace(field, type=with_nullable(field.type, nullable))


def _with_fields(schema: TableSchema, path: tuple[str, ...], change: Callable[[Fields, str], Fields]) -> TableSchema:
    """With the fields of a ROW changed, of which the last name of the path is one."""
    return replace(schema, fields=_fields_at(schema.fields, path, change, ".".join(path)))


def _with_field(schema: TableSchema, path: tuple[str, ...], change: Callable[[DataField], DataField]) -> TableSchema:
    """With one field changed, or what an ARRAY or a MAP holds."""
    shown = ".".join(path)

    def changed(fields: Fields, name: str) -> Fields:
        field = _found(fields, name, shown)
        return tuple(change(each) if each is field else each for each in fields)

    return replace(schema, fields=_fields_at(schema.fields, path, changed, shown))


def _fields_at(fields: Fields, path: Sequence[str], change: Callable[[Fields, str], Fields], shown: str) -> Fields:
    name, *rest = path
    if not rest:
        return change(fields, name)
    field = _found(fields, name, shown)
    inner = replace(field, type=_type_at(field.type, rest, change, shown))
    return tuple(inner if each is field else each for each in fields)


def _type_at(data_type: DataType, path: Sequence[str], change: Callable[[Fields, str], Fields], shown: str) -> DataType:
    match data_type:
        case RowType(fields=fields):
            return replace(data_type, fields=_fields_at(fields, path, change, shown))
        case ArrayType(element=element) if path[0] == ELEMENT:
            return replace(data_type, element=_held(element, path, change, shown))
        case MapType(value=value) if path[0] == VALUE:
            return replace(data_type, value=_held(value, path, change, shown))
    raise InvalidRequestError(
        f"there is no {shown}: {data_type} has no {path[0]!r}; of an ARRAY write 'element', of a MAP 'value'"
    )


def _held(inner: DataType, path: Sequence[str], change: Callable[[Fields, str], Fields], shown: str) -> DataType:
    """What an ARRAY or a MAP holds, changed as a field would be, or at what is in it."""
    (field,) = _fields_at((DataField(0, path[0], inner),), path, change, shown)
    if field.name != path[0] or field.description is not None:
        raise InvalidRequestError(f"{shown} has a type, and neither a name of its own nor a comment")
    return field.type


def _found(fields: Fields, name: str, shown: str) -> DataField:
    for field in fields:
        if field.name == name:
            return field
    raise InvalidRequestError(
        f"there is no {shown}: no field {name!r}; there are {', '.join(each.name for each in fields)}"
    )
