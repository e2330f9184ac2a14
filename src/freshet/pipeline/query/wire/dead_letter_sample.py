"""What the error says when a batch has more dead letters than `max_dead_letters` allows.

A topic in another format than the file says gives nothing but dead letters: without a limit all of it would be copied
into the dead-letter table. A batch over the limit is not committed at all, and neither are its dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.decode.outcomes import COLUMN, KAFKA_PARTITION, OFFSET, ORDER_COLUMNS, REASON, TOPIC
from freshet.pipeline.query.wire.input_order import input_order

FIRST_SHOWN: Final = 10

_SAMPLE_COLUMNS: Final = (*ORDER_COLUMNS, REASON, COLUMN)


def limit_text(limit: MaxDeadLetters) -> str:
    """The limit as it is written in a pipeline file."""
    count = "" if limit.count is None else f", count: {limit.count}"
    return f"max_dead_letters: {{share: {limit.share:g}{count}}}"


class DeadLetterSample:
    """The first dead letters in input order, without their bytes."""

    def __init__(self) -> None:
        self._first: pa.Table | None = None

    def add(self, dead: pa.Table) -> None:
        """Takes dead letters in any order."""
        rows = dead.select(list(_SAMPLE_COLUMNS))
        self._first = _first(rows if self._first is None else pa.concat_tables([self._first, rows]))

    def rows(self) -> list[dict[str, Any]]:
        """The first ones, for people and for the driver."""
        return [] if self._first is None else self._first.to_pylist()


def merged_sample(samples: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """The first of several samples."""
    rows = [row for sample in samples for row in sample]
    rows.sort(key=lambda row: tuple((row[name] is not None, row[name]) for name in ORDER_COLUMNS))
    return rows[:FIRST_SHOWN]


def sample_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per dead letter: where it lies and why it is one."""
    return "\n".join(f"  {_where(row)}: {row[REASON]}{_column(row)}" for row in rows)


def places_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per record: where it lies."""
    return "\n".join(f"  {_where(row)}" for row in rows)


def _first(rows: pa.Table) -> pa.Table:
    order = input_order([rows.column(name) for name in ORDER_COLUMNS])
    return rows.slice(0, FIRST_SHOWN) if order is None else rows.take(pa.array(order[:FIRST_SHOWN]))


def _where(row: Mapping[str, Any]) -> str:
    if row[KAFKA_PARTITION] is None:
        return f"{row[TOPIC]}"
    return f"{row[TOPIC]} partition {row[KAFKA_PARTITION]} offset {row[OFFSET]}"


def _column(row: Mapping[str, Any]) -> str:
    return "" if row[COLUMN] is None else f" (column {row[COLUMN]})"
