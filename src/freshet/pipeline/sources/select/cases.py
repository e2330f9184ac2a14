"""The ways in which a row with computed columns is a dead letter, in the order in which they are checked.

An expression failed, a cast lost a value, the value does not fit its column, or the row breaks one of the rules of
`decode.row_rules` that read a column computed by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet._frozen import Frozen
from freshet.pipeline.decode.change import DELETE, UPDATE_BEFORE
from freshet.pipeline.decode.outcome_batches import OTHER_PREFIX
from freshet.pipeline.decode.outcomes import DATA_PREFIX, KIND, TAG, TAG_DATA, TAG_DEAD, UNAVAILABLE
from freshet.pipeline.decode.plan import ColumnPlan, DecodePlan
from freshet.pipeline.decode.raw_records import PREFIX
from freshet.pipeline.decode.row_rules import FOLDER_TOO_LONG, KEY_NULL, NOT_NULL, SEQUENCE_NULL
from freshet.pipeline.sources.select.expression import SelectExpression
from freshet.pipeline.sources.select.stored_value import stored_value
from freshet.storage.codec.partition_names import FolderRule


class Case(Frozen):
    """One way in which a row is a dead letter."""

    condition: Column
    column: str | None
    reason: str
    tag: int = TAG_DEAD
    """Of its outcome."""


class SparkColumn(Frozen):
    """One column that Spark computes. `failures` says what may go wrong while it does, `given` is the type it gives."""

    column: ColumnPlan
    expression: SelectExpression
    failures: tuple[str, ...]
    given: spark_types.DataType

    @property
    def is_tried(self) -> bool:
        """True where the expression may fail."""
        return bool(self.failures)

    @property
    def may_misfit(self) -> bool:
        """False where every value fits the column."""
        value = F.lit(None)
        return stored_value(self.column, self.given, value) is not value


class Cases(Frozen):
    """The cases of the rows of one source; `computed` are the columns that Spark computes, by index."""

    plan: DecodePlan
    computed: Mapping[int, SparkColumn]

    def may_hold(self, index: int) -> bool:
        """True for a column that may make its row a dead letter."""
        each = self.computed[index]
        column = each.column
        if each.failures or each.expression.lost is not None or each.may_misfit:
            return True
        grouped = any(column.field.name in (*group.ordering, *group.protected) for group in self.plan.groups)
        is_bound = column.is_key or column.is_sequence or column.folder is not None
        return is_bound or grouped or not column.field.type.nullable

    def given(self, index: int, row: Row) -> Column:
        """What the expression gave."""
        if self.computed[index].is_tried:
            return F.col(row.tried(index)).getField("value")
        return F.col(row.computed(index))

    def of(self, row: Row) -> list[Case]:
        """All of them; the first that holds is the reason of the dead letter."""
        return [*self._expression_cases(row), *self._rule_cases(row)]

    def _expression_cases(self, row: Row) -> Iterator[Case]:
        for index, each in self.computed.items():
            column, text = each.column, each.expression.text
            needed = F.lit(True) if column.is_vital else ~row.is_delete
            if each.is_tried:
                reason = f"{text!r} cannot be computed: {' or '.join(each.failures)}"
                yield Case(F.col(row.tried(index)).isNull() & needed, column.field.name, reason)
            if each.expression.lost is not None:
                reason = f"a cast in {text!r} gave NULL for a value that was not NULL"
                tried_lost = F.col(row.tried(index)).getField("lost") if each.is_tried else F.col(row.lost(index))
                yield Case(tried_lost & needed, column.field.name, reason)
            if each.may_misfit:
                reason = f"the value of {text!r} does not fit {column.field.type}"
                misfit = self.given(index, row).isNotNull() & F.col(row.value(index)).isNull()
                yield Case(misfit & needed, column.field.name, reason)

    def _rule_cases(self, row: Row) -> Iterator[Case]:
        """The rules of `decode.row_rules` that read a column computed here."""
        for index, each in self.computed.items():
            column, is_null = each.column, F.col(row.value(index)).isNull()
            name = column.field.name
            if column.folder is not None:
                yield Case(_is_too_long(column.folder, F.col(row.value(index))), name, FOLDER_TOO_LONG)
            if column.is_key:
                yield Case(is_null, name, KEY_NULL)
                continue
            if column.is_sequence:
                yield Case(is_null & row.is_delete, name, SEQUENCE_NULL)
            if not column.field.type.nullable:
                yield Case(is_null & ~row.is_delete & ~row.stays(index), name, NOT_NULL)
        yield from self._group_cases(row)

    def _group_cases(self, row: Row) -> Iterator[Case]:
        indexes = {column.field.name: index for index, column in enumerate(self.plan.columns)}
        groups = self.plan.groups
        used = {indexes[name] for group in groups for name in (*group.ordering, *group.protected)}
        if used.isdisjoint(self.computed):
            return
        for group in groups:
            ordering = _all(self.result(indexes[name], row).isNull() for name in group.ordering)
            present = _any(
                self.result(indexes[name], row).isNotNull() | row.stays(indexes[name]) for name in group.protected
            )
            names = ", ".join(group.ordering)
            reason = f"NULL in the ordering of its sequence group ({names}): its values would never be taken"
            yield Case(~row.is_retract & ordering & present, group.ordering[0], reason)
        lacks = _all(_any(self.result(indexes[name], row).isNull() for name in group.ordering) for group in groups)
        names = "; ".join(", ".join(group.ordering) for group in groups)
        reason = f"NULL in the ordering of the sequence group ({names}): the deletion would change nothing"
        yield Case(row.is_retract & lacks, groups[0].ordering[0], reason)

    def result(self, index: int, row: Row) -> Column:
        """The value of a column of the table."""
        return F.col(row.value(index)) if index in self.computed else row.data(index)


def _is_too_long(rule: FolderRule, value: Column) -> Column:
    def judge(texts: pa.Array) -> pa.Array:
        found = rule.too_long(texts)
        return pa.array(np.zeros(len(texts), np.bool_) if found is None else found)

    return F.arrow_udf(judge, "boolean")(value)  # type: ignore[call-overload, no-any-return]


def _all(conditions: Iterator[Column]) -> Column:
    return reduce(lambda left, right: left & right, conditions)


def _any(conditions: Iterator[Column]) -> Column:
    return reduce(lambda left, right: left | right, conditions)


class Row(Frozen):
    """One of the two; `prefix` is that of the columns which say what the other row has."""

    prefix: str = ""

    @property
    def kind(self) -> Column:
        return kept(self.prefix + KIND)

    @property
    def is_delete(self) -> Column:
        return self.kind == F.lit(DELETE)

    @property
    def is_retract(self) -> Column:
        return self.is_delete | (self.kind == F.lit(UPDATE_BEFORE))

    @property
    def exists(self) -> Column:
        """True where there is such a row; only rows of the table have another one."""
        return self.kind.isNotNull() if self.prefix else kept(TAG) == F.lit(TAG_DATA)

    @property
    def error(self) -> str:
        return f"{PREFIX}{self.prefix}error"

    def computed(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}e{index}"

    def lost(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}l{index}"

    def tried(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}t{index}"

    def value(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}w{index}"

    def judged(self, number: int) -> str:
        """The value of a rule, and whether a cast of it was lost; NULL where it failed."""
        return f"{PREFIX}{self.prefix}j{number}"

    def data(self, index: int) -> Column:
        return kept(f"{self.prefix}{DATA_PREFIX}{index}")

    def stays(self, index: int) -> Column:
        """True where the stored value of the column is kept (unchanged TOAST)."""
        unavailable = kept(self.prefix + UNAVAILABLE)
        return F.coalesce(F.array_contains(F.split(unavailable, ","), F.lit(str(index))), F.lit(False))


SELF: Final = Row()
OTHER: Final = Row(OTHER_PREFIX)


def kept(name: str) -> Column:
    """A column of the decoder: expressions do not see it under this name."""
    return F.col(PREFIX + name)
