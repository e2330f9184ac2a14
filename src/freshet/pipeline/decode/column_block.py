"""Records that come as columns: no text stands between the source and the evaluator.

Whoever reads records with care, or keeps them as dead letters, still finds each as a text of the format of the source:
`raw_records.VALUE` is made for the records that somebody asks for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from freshet.pipeline.decode.careful import CarefulReader
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.evaluator import RecordParser
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.decode.tables_seen import TablesSeen


class ColumnBlock(ABC):
    """A `RecordBlock` of columns."""

    @abstractmethod
    def by_table(self, indexes: RowIndexes) -> Mapping[SourceTable | None, RowIndexes]:
        """The records at these indexes by their tables."""

    @abstractmethod
    def described(self) -> Sequence[DescribedTable]:
        """What the records say of the columns of their table: once for each form that it has here."""

    @abstractmethod
    def parser(self, plan: DecodePlan, careful: CarefulReader, tables: TablesSeen) -> RecordParser:
        """What reads blocks of this kind for a plan."""


def columns_of(block: Any) -> ColumnBlock | None:
    """The block, where it has columns."""
    return block if isinstance(block, ColumnBlock) else None
