"""One image of a record as a row of the table: where its values are, what makes it a dead letter, the row itself.

    payload fields ─ select ─▶ e{i} expression ─ w{i}_1 … ─▶ d{i} the column's carrier; l{i}: a cast lost a value

| a column is to blame when | insert, update | deletion |
|---|---|---|
| a cast in its expression lost a value, the value does not fit | yes | only a vital column |
| it is a key column and NULL | yes | yes |
| it is a sequence field and NULL | no: orders before every change that has one | yes: it would be the oldest change |
| it is NOT NULL and NULL | yes, unless its stored value is looked up | no: the zero of its type is written |
| all ordering columns of a sequence group are NULL, | yes: the value would | no |
| and another column of the group is not | never be taken | |
| no group that the source fills has all of its | no | yes: it would change nothing, or be the oldest |
| ordering columns | | change |

A deletion is told by its vital columns (key, partition, sequence fields, ordering columns of sequence groups): the row
is going anyway, and losing the deletion over some other value would leave it in the table for good.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from freshet.pipeline.batch.arrow_bridge import spark_type
from freshet.pipeline.formats.record import PREFIX
from freshet.pipeline.mapping import ColumnPlan
from freshet.pipeline.payload import MISSING, ErrorCase, PayloadImage
from freshet.pipeline.sql_text import any_of, literal
from freshet.pipeline.store_value import zero_of
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.engine import SequenceGroup


@dataclass(frozen=True, slots=True)
class TableImage:
    """Names of the columns that hold one image's way into the table; `tag` keeps the images of one record apart.

    `columns` are the table columns that this image fills; the row before a change may need only the vital ones.
    """

    tag: str
    columns: tuple[ColumnPlan, ...]
    image: PayloadImage

    def computed(self, place: int) -> str:
        """What the expression gave."""
        return f"{PREFIX}{self.tag}e{place}"

    def lost(self, place: int) -> str:
        """True when a cast in the expression lost a value."""
        return f"{PREFIX}{self.tag}l{place}"

    def stored(self, place: int, step: int) -> str:
        """The value on its way into the column's type."""
        return f"{PREFIX}{self.tag}w{place}_{step}" if step else self.computed(place)

    def value(self, place: int) -> str:
        """The value in the column's carrier."""
        return f"{PREFIX}{self.tag}d{place}"

    def errors(self, sequence: Sequence[str], is_delete: str, looked_up: Collection[str]) -> list[ErrorCase]:
        """The cases of the module's table, but for sequence groups.

        `is_delete` is SQL text, `sequence` names the sequence fields, `looked_up` the columns whose unavailable values
        are looked up in the table.
        """
        cases = []
        for place, column in enumerate(self.columns):
            if column.expression:
                cases += self._expression_errors(place, column, "" if column.is_vital else f" AND NOT {is_delete}")
            value, name = self.value(place), column.field.name
            if column.is_key:
                cases.append(ErrorCase(f"{value} IS NULL", name, "'NULL in a key column'"))
                continue
            if name in sequence:
                reason = (
                    "the sequence field of a deletion is NULL: it could not be told from the oldest change of its key"
                )
                cases.append(ErrorCase(f"{value} IS NULL AND {is_delete}", name, literal(reason)))
            if not column.field.type.nullable:
                condition = f"{value} IS NULL AND NOT {is_delete}"
                if column.only_field and name in looked_up:
                    kept = f"array_contains({MISSING}, {literal(column.only_field)})"
                    condition += f" AND NOT coalesce({kept}, false)"
                cases.append(ErrorCase(condition, name, "'NULL in a NOT NULL column'"))
        return cases

    def group_errors(self, groups: Sequence[SequenceGroup], is_retract: str) -> list[ErrorCase]:
        """The cases of sequence groups; `groups` are those that the source fills, `is_retract` is SQL text."""
        places = {column.field.name: place for place, column in enumerate(self.columns)}
        cases = []
        for group in groups:
            ordering = [f"{self.value(places[name])} IS NULL" for name in group.ordering]
            present = [self._is_present(places[name]) for name in group.protected if name in places]
            condition = f"NOT {is_retract} AND {' AND '.join(ordering)} AND {any_of(present)}"
            names = ", ".join(group.ordering)
            reason = f"NULL in the ordering of its sequence group ({names}): its values would never be taken"
            cases.append(ErrorCase(condition, group.ordering[0], literal(reason)))
        if groups:
            incomplete = [any_of([f"{self.value(places[name])} IS NULL" for name in g.ordering]) for g in groups]
            names = "; ".join(", ".join(group.ordering) for group in groups)
            reason = f"NULL in the ordering of the sequence group ({names}): the deletion would change nothing"
            condition = f"{is_retract} AND {' AND '.join(incomplete)}"
            cases.append(ErrorCase(condition, groups[0].ordering[0], literal(reason)))
        return cases

    def data(self, schema: TableSchema, is_delete: str) -> str:
        """The row as a struct of the table's columns."""
        places = {column.field.name: place for place, column in enumerate(self.columns)}
        parts = []
        for field in schema.fields:
            carrier = spark_type(field.type).simpleString()
            value = self.value(places[field.name]) if field.name in places else f"CAST(NULL AS {carrier})"
            if not field.type.nullable and field.name not in schema.primary_keys:
                value = f"CASE WHEN {is_delete} THEN coalesce({value}, {zero_of(field.type)}) ELSE {value} END"
            parts.append(f"{literal(field.name)}, {value}")
        return f"named_struct({', '.join(parts)})"

    def _is_present(self, place: int) -> str:
        """True when the row has a value for the column, at hand or unavailable."""
        present = f"{self.value(place)} IS NOT NULL"
        field = self.columns[place].only_field
        return f"{present} OR coalesce(array_contains({MISSING}, {literal(field)}), false)" if field else present

    def _expression_errors(self, place: int, column: ColumnPlan, needed: str) -> list[ErrorCase]:
        assert column.expression is not None
        text, name = column.expression.text, column.field.name
        cases = []
        if column.expression.lost is not None:
            reason = literal(f"a cast in {text!r} gave NULL for a value that was not NULL")
            cases.append(ErrorCase(self.lost(place) + needed, name, reason))
        reason = literal(f"the value of {text!r} does not fit {column.field.type}")
        condition = f"{self.computed(place)} IS NOT NULL AND {self.value(place)} IS NULL{needed}"
        return [*cases, ErrorCase(condition, name, reason)]
