"""Changes of a block by the forms of their tables, each group as columns for the evaluator.

A column is Arrow texts (`sent_changes`, `copied_block`), which are converted as a whole; what its conversion does not
take is left to the careful path, row by row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.careful import CarefulReader, shown_name
from freshet.pipeline.decode.column_block import ColumnBlock
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.evaluator import Evaluator, InputColumn, ParsedChanges, RecordParser
from freshet.pipeline.decode.images import Findings, Images, RowIndexes
from freshet.pipeline.decode.inputs import Input
from freshet.pipeline.decode.json_value import JsonNumber
from freshet.pipeline.decode.outcomes import EventTimes, event_times
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.tables_seen import TablesSeen
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.value_texts import misfit_reason, text_converter


class PostgresBlock(ColumnBlock):
    """A block of records of PostgreSQL."""

    @abstractmethod
    def parts(self, parser: ChangeParser, indexes: RowIndexes) -> Iterator[tuple[TableForm, ParsedChanges]]:
        """The changes among the records at these indexes, by the form of their table."""

    @abstractmethod
    def column(self, name: str) -> pa.Array:
        """`RecordBlock.column`."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """`RecordBlock.num_rows`."""

    @abstractmethod
    def values(self, indexes: RowIndexes) -> list[bytes]:
        """`RecordBlock.values`."""

    def present(self) -> RowIndexes:
        """`RecordBlock.present`."""
        return np.arange(self.num_rows)

    def broken_texts(self, indexes: RowIndexes) -> RowIndexes:
        """`RecordBlock.broken_texts`."""
        return indexes[:0]

    def has_text(self, text: bytes) -> bool:
        """`RecordBlock.has_text`."""
        return any(text in each for each in self.values(self.present()))

    def times(self) -> EventTimes | None:
        """`RecordBlock.times`."""
        return event_times(self.column(raw_records.TIMESTAMP))

    def parser(self, plan: DecodePlan, careful: CarefulReader, tables: TablesSeen) -> RecordParser:
        """`ColumnBlock.parser`."""
        return ChangeParser(plan, careful)


class ChangeParser(RecordParser):
    """Reads the blocks of one source."""

    def __init__(self, plan: DecodePlan, careful: CarefulReader) -> None:
        self.plan = plan
        self.inputs = careful.inputs(None)
        self.known = {each.name for each in plan.fields}
        self.with_default = plan.fields_with_default
        self.wanted: set[str | None] = {each.name for each in plan.scope if not each.is_member}
        self.wanted |= {column.metadata for column in plan.columns}
        self._evaluator, self._spelled = Evaluator(plan, self.inputs), careful.spelled

    def read(self, block: RecordBlock, indexes: RowIndexes, findings: Findings) -> tuple[list[Images], RowIndexes]:
        assert isinstance(block, PostgresBlock)
        images, done = list[Images](), [indexes[:0]]
        for form, changes in block.parts(self, indexes):
            if self._is_odd(form):
                continue
            found = self._evaluator.evaluate(changes)
            images += found.images
            done += found.done
            findings.skipped.update(found.skipped)
            findings.dead.update(found.dead)
            findings.tables.setdefault(form.source_table, int(changes.records[0]))
        if sum(map(len, done)) == len(indexes):
            return images, indexes[:0]
        return images, np.setdiff1d(indexes, np.concatenate(done))

    def unknown(self, form: TableForm, count: int) -> dict[str, Mask]:
        """The columns that nothing reads, as `ParsedChanges.unknown`."""
        names = [name for name in form.indexes if name not in self.known]
        return dict.fromkeys(map(shown_name, names), np.ones(count, bool))

    def column(
        self,
        each: Input,
        form: TableForm,
        count: int,
        texts_of: Callable[[int], tuple[pa.Array, Mask | None]],
        member_of: Callable[[str], pa.Array],
    ) -> InputColumn:
        """An input of some rows. `texts_of` gives the texts of a column and which of them were not sent, `member_of` a
        member of `_source`."""
        if each.is_member:
            array, lost = each.converter.one_by_one([_as_json(value) for value in member_of(each.name).to_pylist()])
            return InputColumn(array, lost)
        index = form.indexes.get(each.name)
        if index is None:
            absent = np.ones(count, bool) if each.name in self.with_default else None
            return InputColumn(pa.nulls(count, each.converter.arrow), absent=absent)
        texts, gone = texts_of(index)
        source, data_type = form.types[index], each.converter.data_type
        array, lost = text_converter(source, data_type).of_texts(texts)
        found = InputColumn(array, lost, misfit=misfit_reason(each.name, source, data_type))
        if gone is not None and gone.any():
            found.gone, found.unclear = (gone, None) if each.may_be_toast else (None, gone)
        return found

    def _is_odd(self, form: TableForm) -> bool:
        """Whether the careful path has to read the changes of a table in this form."""
        if self.plan.fails_on_unknown and not form.indexes.keys() <= self.known:
            return True
        if self._spelled is not None and self._spelled.found(form.indexes):
            return True
        only = self.plan.only
        return only is not None and not only.takes(*form.source_table)


def _as_json(value: Any) -> Any:
    return JsonNumber(value) if isinstance(value, int) else value
