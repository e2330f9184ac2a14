"""The columns of `select` that the decoder computes, and the rows in which one of them fails or does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.change import DELETE
from freshet.pipeline.decode.convert.by_type import convert_texts
from freshet.pipeline.decode.convert.converter import null_mask
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.row_rules import Broken, Kinds
from freshet.storage.model.data_type import DataType


def fill_selected(
    plan: DecodePlan, columns: list[pa.Array], inputs: Mapping[int, pa.Array], kinds: Kinds
) -> Iterator[Broken]:
    """Puts the values of expressions into their columns; gives the rows in which one fails, or does not fit.

    `inputs` are what the expressions read, by their index in the scope of the plan. A deletion needs its vital columns
    alone.
    """
    from freshet.pipeline.expressions.evaluation import evaluate

    local = [(index, each) for index, column in enumerate(plan.columns) if (each := column.local) is not None]
    results = evaluate(inputs, len(kinds), [each.sql for _, each in local])
    is_delete = kinds == DELETE
    for (index, each), result in zip(local, results, strict=True):
        column = plan.columns[index]
        data_type, name = column.field.type, column.field.name
        values, misfits = result.values, result.misfits
        if each.is_text:
            values = convert_texts(data_type, result.values)
            misfits = null_mask(values) & ~null_mask(result.values)
        columns[index] = _in_carrier(values, data_type)
        for mask, reason in ((result.failed, each.reason), (misfits, each.misfit)):
            if mask is not None:
                yield Broken(mask if column.is_vital else mask & ~is_delete, reason, name)


def _in_carrier(values: pa.Array, data_type: DataType) -> pa.Array:
    wanted = carrier_arrow_type(data_type)
    if pa.types.is_timestamp(values.type) and pa.types.is_timestamp(wanted):
        return values.view(wanted)  # in microseconds of UTC, whether a zone is named or not
    return values if values.type == wanted else values.cast(wanted)
