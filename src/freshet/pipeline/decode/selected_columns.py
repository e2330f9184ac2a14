"""The columns that the decoder computes: those of `select`, with the rows in which one of them fails or does not fit,
and computed columns of the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.config.computed_columns import PARTS, TEXT_FUNCTIONS, ComputedColumn, strftime_pattern
from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.change import DELETE
from freshet.pipeline.decode.convert.by_type import convert_texts
from freshet.pipeline.decode.convert.converter import null_mask
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.row_rules import Broken, Kinds
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import DataType
from freshet.storage.model.sql_type import parse_sql_type

_STAMP: Final = parse_sql_type("TIMESTAMP(6)")


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


def computed_values(computed: ComputedColumn, column: pa.Array, count: int) -> pa.Array:
    """The result as an Arrow array, in storage form or a carrier; `column` is in storage form, None for a constant."""
    if computed.function == "cast":
        return _constant(computed, count)
    if computed.function in (*PARTS, "date_format"):
        times = convert_texts(_STAMP, column) if pa.types.is_string(column.type) else column
        return _of_times(computed, times)
    if computed.function == "truncate":
        return _truncated(column, int(computed.arguments[0]))
    if computed.function == "substring":
        begin, end = int(computed.arguments[0]), int(computed.arguments[1]) if len(computed.arguments) > 1 else None
        return pc.utf8_slice_codeunits(column, begin, end)
    return pc.call_function(TEXT_FUNCTIONS[computed.function], [column])


def _constant(computed: ComputedColumn, count: int) -> pa.Array:
    text, type_text = computed.arguments
    found = convert_texts(parse_sql_type(type_text), pa.array([text]))
    if found.null_count:
        raise InvalidRequestError(f"cast wants a constant of type {type_text}, not {text!r}")
    return found.take(pa.array(np.zeros(count, np.int64)))


def _of_times(computed: ComputedColumn, times: pa.Array) -> pa.Array:
    if computed.function == "date_format":
        plain = times.cast(pa.timestamp("s")) if pa.types.is_date(times.type) else _in_seconds(times)
        return pc.strftime(plain, format=strftime_pattern(computed.arguments[0]))
    if pa.types.is_date(times.type) and computed.function in ("hour", "minute", "second"):
        return pc.if_else(times.is_valid(), pa.scalar(0, pa.int32()), pa.scalar(None, pa.int32()))
    return pc.call_function(computed.function, [times]).cast(pa.int32())


def _in_seconds(times: pa.Array) -> pa.Array:
    floored = pc.floor_temporal(times, unit="second")
    return floored.cast(pa.timestamp("s", times.type.tz), safe=False)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    numbers = column.cast(pa.int64())
    remainder = pc.subtract(numbers, pc.multiply(pc.divide(numbers, width), width))
    below = pc.if_else(pc.less(remainder, 0), pc.add(remainder, width), remainder)
    # Below the smallest multiple of a type it wraps around, as in Apache Paimon.
    return pc.subtract(numbers, below).cast(column.type, safe=False)
