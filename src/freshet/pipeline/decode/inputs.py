"""What a decoder reads of each record, as a list of columns: payload fields, then fields of `_source`.

| input | read from | type |
|---|---|---|
| payload field | the row before or after the change | the field's |
| `_source.x` that fills a column | `source` | the column's, by the text of the value |
| `_source.x` that expressions read | `source` | STRING |

The fast and the careful path fill the same inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from freshet.pipeline.decode.change import Facts
from freshet.pipeline.decode.convert.by_type import converter_for, is_refused
from freshet.pipeline.decode.convert.converter import Cell, Converted, Converter, FieldConversion
from freshet.pipeline.decode.convert.scalars import IntegerConverter, TextConverter
from freshet.pipeline.decode.convert.times import NAMED_TEXTS, unit_of
from freshet.pipeline.decode.dialect import PLAIN_TEXT, Fact
from freshet.pipeline.decode.dialect import STRING as STRING_KIND
from freshet.pipeline.decode.json_value import INT, STRING, JsonValue, text_of
from freshet.pipeline.decode.plan import NAMED_TYPES, ColumnPlan, DecodePlan, PayloadField
from freshet.pipeline.decode.plan import STRING as STRING_TYPE
from freshet.storage.model.data_type import ArrayType, DataType, ScalarType, TypeRoot

FactsKey = tuple[tuple[str, Fact], ...] | None
"""The facts that matter, in the order of the fields; None without a schema."""

_BIGINT: Final = ScalarType(TypeRoot.BIGINT)
_NO_FACT: Final = Fact("")
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_TIMES: Final = frozenset({TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})


class MemberConverter(Converter):
    """A field of `_source`: whatever it is, its text is converted."""

    def __init__(self, data_type: DataType) -> None:
        super().__init__(data_type)
        self._text = converter_for(data_type, PLAIN_TEXT)

    def one(self, value: JsonValue) -> Cell:
        text = text_of(value)
        assert text is not None
        return self._text.one(str(text))

    def of_array(self, array: pa.Array) -> Converted | None:
        if pa.types.is_integer(array.type) and not isinstance(self._text, IntegerConverter | TextConverter):
            return None  # The text of a number is none to the others.
        if pa.types.is_integer(array.type) or isinstance(self._text, TextConverter):
            return self._text.of_array(array)
        return None

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        expected = {IntegerConverter: INT, TextConverter: STRING}.get(type(self._text))
        return self._text.conversion(kinds) if expected is not None and kinds <= {expected} else self.raw_conversion


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One column that is read.

    `is_member` for fields of `_source`; `column` is what a dead letter names; `index` the table column that a member
    fills.
    """

    name: str
    converter: Converter
    column: str
    is_vital: bool
    reason: str
    is_member: bool = False
    may_be_toast: bool = False
    index: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The inputs of one source and one set of facts."""

    all: tuple[Input, ...]
    field_count: int
    """The payload fields come first."""


def facts_key(plan: DecodePlan, facts: Facts) -> FactsKey:
    """What matters of a record's facts."""
    if facts is None or not plan.wants_facts:
        return None
    found = ((field, facts.get(field.name, _NO_FACT)) for field in plan.fields if field.wants_fact)
    return tuple((field.name, fact) for field, fact in found if _matters(field.type, fact))


def _matters(data_type: DataType, fact: Fact) -> bool:
    """Whether a fact says something that the declared type does not."""
    if isinstance(data_type, ArrayType):
        return _matters(data_type.element, fact.items or _NO_FACT)
    if data_type.root in NAMED_TYPES:
        return True
    return fact.name in NAMED_TEXTS if data_type.root in _TEXTS else bool(fact.kind)


def inputs_of(plan: DecodePlan, key: FactsKey) -> Inputs:
    """All inputs under these facts."""
    facts = None if key is None else dict(key)
    fields = [_field_input(field, plan, facts) for field in plan.fields]
    direct = [_member_input(column, index) for index, column in enumerate(plan.columns) if column.member is not None]
    read = [
        Input(each.name, MemberConverter(STRING_TYPE), each.name, False, "", is_member=True)
        for each in plan.scope
        if each.is_member
    ]
    return Inputs((*fields, *direct, *read), len(fields))


def _field_input(field: PayloadField, plan: DecodePlan, facts: dict[str, Fact] | None) -> Input:
    fact = None if facts is None else facts.get(field.name)
    return Input(
        name=field.name,
        converter=converter_for(field.type, plan.dialect, fact),
        column=field.column,
        is_vital=field.is_vital,
        reason=f"the value of field {field.name} does not fit {field.type}{_hint(field.type, plan, fact)}",
        may_be_toast=field.may_be_toast,
    )


def _member_input(column: ColumnPlan, index: int) -> Input:
    assert column.member is not None
    text = f"_source.{column.member}"
    return Input(
        name=column.member,
        converter=MemberConverter(_BIGINT if column.is_epoch else column.field.type),
        column=column.field.name,
        is_vital=column.is_vital,
        reason=f"the value of {text!r} does not fit {column.field.type}",
        is_member=True,
        index=index,
    )


def _hint(data_type: DataType, plan: DecodePlan, fact: Fact | None) -> str:
    if not isinstance(data_type, ScalarType):
        return ""
    if fact is not None and is_refused(data_type, plan.dialect, fact):
        mode = "; binary_handling_mode says what a text is" if fact.kind == STRING_KIND else ""
        return f" (its schema calls it {fact.name or fact.kind}{mode})"
    if data_type.root in _TIMES:
        if fact is not None and (fact.name or plan.dialect.named_times):
            takes_numbers = unit_of(data_type, plan.dialect, fact) is not None
            return "" if takes_numbers else f" (its schema calls it {fact.name or 'no time'})"
        takes_mode = plan.dialect.numeric_times == "isostring" and not plan.captures_changes  # theirs was said
        return " (numbers need time_precision_mode)" if takes_mode else ""
    return " (exactly)" if data_type.root is TypeRoot.DECIMAL else ""
