"""The msgspec types of the fast path: a record as structs, each field in the type of its conversion
(`convert.converter.FieldConversion`).

Fields that nothing reads become members of the struct once they are known by name, so that a struct can refuse the ones
that are not. A missing field has its conversion's default; where the rows before updates are wanted it is `UNSET`,
because there missing is not NULL.

The envelope of one table has its names as the only values that `source` may have: a record of another table is refused,
for one that fits its names need not be read (0.07 µs a record; a column of names costs 0.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode.binlog import CANAL_KINDS, MAXWELL_KINDS, TS_MAX
from freshet.pipeline.decode.convert.converter import NO_RAW, FieldConversion
from freshet.pipeline.decode.flat import ADDED_PREFIX
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import PARTS, SourceTable, part_names

Slot = tuple[bool, str]
"""A member that is read: of `_source` (true) or of the row, and its name."""

Struct = Any
"""A record or a row as msgspec gives it, in a type that is made here; None for a row that is not there."""

Member = tuple[Any, Any]
"""The annotation of a member of a struct, and its default."""

Op = Literal["r", "c", "u", "d"]
_SOURCE_MARKS: Final = ("source_", "")
_NOTHING: Final = Literal["", None]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None
_Seconds = Annotated[int, msgspec.Meta(ge=-TS_MAX, le=TS_MAX)] | None
_MESSAGE_KINDS: Final[Mapping[str, Any]] = {
    "canal-json": Literal[tuple(CANAL_KINDS)],
    "maxwell-json": Literal[tuple(MAXWELL_KINDS)],
}

ROW_PATHS: Final[Mapping[Format, tuple[str, ...]]] = {
    "debezium-json": ("$.after", "$.before"),
    "debezium-unwrapped": ("$",),
    "canal-json": ("$.data[...]", "$.old[...]"),
    "maxwell-json": ("$.data", "$.old"),
    "json": ("$",),
    "row-kind": ("$",),
}
"""Where rows are in a record, as msgspec writes paths."""


@dataclass(frozen=True, slots=True, eq=False)
class Structs:
    """The struct of one shape.

    `decode` gives a record, of the row itself in flat formats. `source_names` are the attributes of `source`, in the
    messages of Canal and Maxwell those of the message, which is its own source. `row_names` are the attributes of a row
    by member name, `conversions` the conversion of each input.
    """

    decode: Callable[[bytes], Struct]
    row: type
    source: type | None
    row_names: Mapping[str, str]
    source_names: Mapping[str, str]
    conversions: tuple[FieldConversion, ...]
    unknown: Mapping[str, str]


def can_be_member(name: str) -> bool:
    """Whether a field of JSON can be a member of a struct: msgspec takes names that need no escape."""
    return name.isprintable() and '"' not in name and "\\" not in name


def slots_of(inputs: Inputs) -> list[Slot]:
    """The slot of each input."""
    return [(each.is_member, each.name) for each in inputs.all]


def conversions_of(inputs: Inputs, kinds: Mapping[Slot, frozenset[str]]) -> tuple[FieldConversion, ...]:
    """The conversion of each input for the kinds of values seen; a member that several inputs read is kept raw."""
    slots = slots_of(inputs)
    return tuple(
        each.converter.conversion(kinds.get(slot, frozenset()))
        if slots.count(slot) == 1
        else each.converter.raw_conversion
        for each, slot in zip(inputs.all, slots, strict=True)
    )


def can_refuse_tables(plan: DecodePlan, inputs: Inputs, kinds: Mapping[Slot, frozenset[str]]) -> bool:
    """Whether structs can refuse records of other tables: they read `source` as a struct, and its names as texts."""
    is_read = plan.format == "debezium-json" or plan.is_binlog
    if not is_read or any(each.name == "_source" for each in plan.scope):
        return False
    names = part_names(plan.format)
    conversions = zip(inputs.all, conversions_of(inputs, kinds), strict=True)
    return all(
        conversion.annotation == str | None for each, conversion in conversions if each.is_member and each.name in names
    )


def build_structs(
    plan: DecodePlan,
    inputs: Inputs,
    kinds: Mapping[Slot, frozenset[str]],
    unknown: Sequence[str],
    only: tuple[SourceTable | None] | None = None,
) -> Structs:
    """The structs of one shape. With `only`, they take records of this table alone, or of those that name none."""
    conversions = conversions_of(inputs, kinds)
    members: dict[str, Member] = {}
    source: dict[str, Member] = {}
    is_flat = plan.format != "debezium-json" and not plan.is_binlog
    with_default = plan.fields_with_default
    for each, conversion in zip(inputs.all, conversions, strict=True):
        if not each.is_member:
            marks = (plan.takes_before and not plan.is_binlog) or each.name in with_default
            members[each.name] = _slot_type(conversion, marks_missing=marks)
        elif is_flat:
            for mark in _SOURCE_MARKS:
                members[f"{ADDED_PREFIX}{mark}{each.name}"] = (conversion.annotation, conversion.default)
        else:
            source[each.name] = (conversion.annotation, conversion.default)
    if plan.kind_field is not None and plan.kind_field not in members:
        members[plan.kind_field] = (str | None, None)
    if plan.format == "debezium-unwrapped":
        members |= {
            "__op": (str | None, None),
            "__deleted": (str | bool | None, None),
            "__ts_ms": (_Long, None),
            "__source_ts_ms": (_Long, None),
        }
    for name in unknown:
        members.setdefault(name, (msgspec.Raw | msgspec.UnsetType, msgspec.UNSET))
    row, row_names = _struct("Row", members, forbids_unknown=True)
    source_names: Mapping[str, str] = {}
    of_source: type | None = None
    top: type = row
    if plan.is_binlog:
        top, source_names = _message(plan, members, row, source, only)
    elif not is_flat:
        envelope: list[Any] = [
            ("before", row | None, None),
            ("after", row | None, None),
            ("op", Op | None, None),
        ]
        if any(each.name == "_ts_ms" for each in plan.scope) or any(c.metadata == "_ts_ms" for c in plan.columns):
            envelope.append(("ts_ms", _Long, None))
        if any(each.name == "_source" for each in plan.scope):
            envelope.append(("source", msgspec.Raw, NO_RAW))
        elif source or only is not None:
            source |= _marks(only, PARTS)
            of_source, source_names = _struct("Source", source, forbids_unknown=False)
            is_required = only is not None and only[0] is not None
            envelope.append(("source", of_source) if is_required else ("source", of_source | None, None))
        top = msgspec.defstruct("Envelope", envelope, gc=False, kw_only=True)
    return Structs(
        decode=msgspec.json.Decoder(top).decode,
        row=row,
        source=of_source,
        row_names=row_names,
        source_names=source_names,
        conversions=conversions,
        unknown={name: row_names[name] for name in unknown},
    )


def _slot_type(conversion: FieldConversion, *, marks_missing: bool) -> Member:
    if not marks_missing or conversion.annotation is msgspec.Raw:
        return conversion.annotation, conversion.default
    return conversion.annotation | msgspec.UnsetType, msgspec.UNSET


def _message(
    plan: DecodePlan,
    members: Mapping[str, Member],
    row: type,
    source: Mapping[str, Member],
    only: tuple[SourceTable | None] | None,
) -> tuple[type, Mapping[str, str]]:
    """The struct of a message of Canal or Maxwell, and its attributes by member. What `old` lacks has not changed."""
    olds = {
        name: (annotation, NO_RAW) if annotation is msgspec.Raw else (annotation | msgspec.UnsetType, msgspec.UNSET)
        for name, (annotation, _) in members.items()
    }
    old, _ = _struct("Old", olds, forbids_unknown=True)
    ts = _Long if plan.format == "canal-json" else _Seconds
    data, changed = (list[row], list[old | None]) if plan.has_several_rows else (row, old)  # type: ignore[valid-type]
    message: dict[str, Member] = {
        "type": (_MESSAGE_KINDS[plan.format] | None, None),
        "data": (data | None, None),
        "old": (changed | None, None),
        **source,
        **_marks(only, part_names(plan.format)),
    }
    if any(each.name == "_ts_ms" for each in plan.scope) or any(c.metadata == "_ts_ms" for c in plan.columns):
        message["ts"] = (ts, None)
    return _struct("Message", message, forbids_unknown=False)


def _marks(only: tuple[SourceTable | None] | None, parts: tuple[str, str, str]) -> dict[str, Member]:
    """The members that name the table of a record, with the values that they may have."""
    if only is None:
        return {}
    (table,) = only
    if table is None:
        return {parts[-1]: (_NOTHING, None)}
    return {
        name: (Literal[part], msgspec.NODEFAULT) if part else (_NOTHING, None)
        for name, part in zip(parts, table, strict=True)
        if name
    }


def _struct(name: str, members: Mapping[str, Member], *, forbids_unknown: bool) -> tuple[type, Mapping[str, str]]:
    names = {member: f"m{index}" for index, member in enumerate(members)}
    fields = [(names[member], annotation, default) for member, (annotation, default) in members.items()]
    back = {attribute: member for member, attribute in names.items()}
    struct = msgspec.defstruct(name, fields, rename=back, gc=False, forbid_unknown_fields=forbids_unknown, kw_only=True)
    return struct, names
