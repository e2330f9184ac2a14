"""What the error says when a batch has more dead letters than `max_dead_letters` allows.

A topic in another format than the file says gives nothing but dead letters: without a limit all of it would be copied
into the dead-letter table. A batch over the limit is not committed at all, and neither are its dead letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    """Where each dead letter lies and why it is one, a line for those of which the same is known."""
    return _lines(f"{_where(row)}: {row[REASON]}{_column(row)}" for row in rows)


def places_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where each record lies; of files their names are all that is known."""
    return _lines(map(_where, rows))


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(f"  {text}{'' if n == 1 else f' ({n} records)'}" for text, n in Counter(texts).items())


def _first(rows: pa.Table) -> pa.Table:
    order = input_order([rows.column(name) for name in ORDER_COLUMNS])
    return rows.slice(0, FIRST_SHOWN) if order is None else rows.take(pa.array(order[:FIRST_SHOWN]))


def _where(row: Mapping[str, Any]) -> str:
    if row[KAFKA_PARTITION] is None:
        return f"{row[TOPIC]}"
    return f"{row[TOPIC]} partition {row[KAFKA_PARTITION]} offset {row[OFFSET]}"


def _column(row: Mapping[str, Any]) -> str:
    return "" if row[COLUMN] is None else f" (column {row[COLUMN]})"
