"""The decoder of a source of many tables: raw records in, packed outcomes of each table out, and what is new in them.

    batch ─ blocks ─ by source table ─┬─ known: the decoder of its plan ─ outcomes ─ packed by task
                                      ├─ held back, excluded, no rule takes it: counted
                                      └─ new, or with new fields: told (`SeenSchema`), for the driver to follow

A batch in which something is new is not committed: the driver follows it, and the batch is run once more. So from there
on only what is new is looked for, and nothing is decoded.

A tombstone of rows that Debezium has unwrapped is a deletion, and names no table; nor does a value that cannot be read.
It is of the one that its topic stands for, where the pipeline knows that; else it is a dead letter: the rows of the
topic may name other tables.

Rows, dead letters and tallies cross as (task, table, Arrow's bytes). Those of no table have the number 0, the ledger's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet._garbage import collect_now_and_then, without_gc
from freshet.pipeline.decode import record_block
from freshet.pipeline.decode.change import Dead, Skipped, Truncate, changes_of
from freshet.pipeline.decode.decoder import BLOCK_BYTES, Counts, block_decoder, blocks_of, with_culprit, without_skipped
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.outcome_batches import OutcomeWriter
from freshet.pipeline.decode.outcomes import Tally, TruncatedAt
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.reading import read_record
from freshet.pipeline.decode.record_block import MIXED_RECORDS, RecordBlock, block_of, blocks_within
from freshet.pipeline.decode.source_table import SourceTable, table_of_topic
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS
from freshet.pipeline.sync.record_sorter import RecordSorter, SortedRecords, tables_of_topics
from freshet.pipeline.sync.routes import EXCLUDED, Route, route_of
from freshet.pipeline.sync.stream_news import KnownSchemas, StreamNews
from freshet.pipeline.sync.table_decoding import LEFT, NOTHING, Held, ManyPlan, TableDecoding
from freshet.storage.exceptions import RetryableError
from freshet.storage.model.row_kind import RowKind

NO_TABLE: Final = 0
"""The number of the ledger, under which what belongs to no table crosses."""

_PRESUMED_SHARE: Final = 0.5
"""Of the records that are taken for those of a table, at most so many may have to be sorted after all."""
_SAYS_NOTHING: Final = "the record says nothing of the columns of its table, which is not there yet"
_NAMELESS: Final = "the record does not say which table it is of"
_OF_NO_TABLE: Final = (
    "a tombstone does not say which table it is of, and the pipeline knows no table {table} of its topic: have the "
    "connector write delete.tombstone.handling.mode=rewrite"
)


@dataclass(slots=True)
class _BatchStream:
    """One stream of batches."""

    news: StreamNews
    counts: Counts = field(default_factory=Counts)
    truncated: list[TruncatedAt] = field(default_factory=list)
    may_be_wrapped: bool = True
    """Whether a record of the block may have a schema beside its payload."""


class ManyDecoder(Frozen):
    """Takes batches of `raw_records`, gives (task, table, packed outcomes); a value that travels to the workers."""

    plan: ManyPlan

    def __call__(self, batches: Iterable[pa.RecordBatch | RecordBlock]) -> Iterator[tuple[int, int, pa.Buffer]]:
        """The call of a `Packer`: an error that would come again is reported in the tally, which ends the stream."""
        with without_gc():
            yield from self._of_stream(batches)

    def _of_stream(self, batches: Iterable[pa.RecordBatch | RecordBlock]) -> Iterator[tuple[int, int, pa.Buffer]]:
        shared = _shared(self.plan.ledger)
        stream = _BatchStream(StreamNews(self.plan, shared.schemas))
        for batch in batches:
            records = block_of(batch)
            stream.counts.saw(records)
            for block in blocks_within(records, MIXED_RECORDS, BLOCK_BYTES):
                collect_now_and_then()
                try:
                    outcomes = list(self._decoded(block, stream, shared))
                except RetryableError:
                    raise
                except REPEATING_ERRORS as error:
                    failed = with_culprit(error, block, self._alone)
                    yield from self.tally(Tally(stream.counts.read, error=failed))
                    return
                yield from outcomes
        counts = stream.counts
        if counts.read:
            tally = Tally(counts.read, counts.skipped, counts.notes, sizes=counts.sizes, seen=stream.news.found())
            yield from self.tally(replace(tally, times=counts.times, truncated=tuple(stream.truncated)))

    def _alone(self, block: RecordBlock) -> None:
        shared = _shared(self.plan.ledger)
        list(self._decoded(block, _BatchStream(StreamNews(self.plan, shared.schemas)), shared))

    def tally(self, tally: Tally) -> Iterator[tuple[int, int, pa.Buffer]]:
        """What whoever reads the records has to say, packed."""
        yield from self._packed(NO_TABLE, _shared(self.plan.ledger).writer.tally(tally))

    def _packed(self, table: int, outcomes: pa.RecordBatch) -> Iterator[tuple[int, int, pa.Buffer]]:
        for task, packed in self.plan.rules[table].packed(outcomes):
            yield task, table, packed

    def _decoded(
        self, block: RecordBlock, stream: _BatchStream, shared: _Shared
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        counts = stream.counts
        if self.plan.ledger.skips:
            count = block.num_rows
            block, letters = without_skipped(block, self.plan.ledger.skips, shared.writer)
            counts.read += count - block.num_rows
            if letters is not None:
                yield from self._packed(NO_TABLE, letters)
        indexes = block.present()
        is_whole = len(indexes) == block.num_rows
        tombstones = indexes[:0] if is_whole else np.setdiff1d(np.arange(block.num_rows), indexes)
        presumed, indexes = shared.sorter.presumed(block, indexes)
        for presumed_table, chosen in presumed.items():
            left = yield from self._of_presumed(block, presumed_table, chosen, stream, shared)
            indexes = np.union1d(indexes, left)
        found = shared.sorter.sort(block, indexes) if len(indexes) else SortedRecords({}, False)
        by_table, stream.may_be_wrapped = dict(found.by_table), found.may_be_wrapped
        dead: dict[int, tuple[str, str | None]] = {}
        if len(tombstones) and self.plan.ledger.format == "debezium-unwrapped":
            self._sort_tombstones(block, tombstones, by_table, dead, stream)
        elif len(tombstones):
            counts.read += len(tombstones)
            counts.skipped["tombstone"] += len(tombstones)
        unsorted = by_table.pop(None, None)
        if unsorted is not None:
            self._sort_carefully(block, unsorted, by_table, dead, stream)
        for table, chosen in by_table.items():
            assert table is not None
            yield from self._of_table(block, table, chosen, stream, shared)
        if dead and not stream.news.is_any:
            yield from self._packed(NO_TABLE, shared.writer.block(block, 0).dead(dead))

    def _of_presumed(
        self, block: RecordBlock, table: SourceTable, indexes: RowIndexes, stream: _BatchStream, shared: _Shared
    ) -> Generator[tuple[int, int, pa.Buffer], None, RowIndexes]:
        """Records that are taken for those of a table; gives the indexes of those that are to be sorted."""
        decoding, counts = self.plan.tables.get(table), stream.counts
        is_over = stream.news.is_any and not self.plan.guesses
        if is_over or not isinstance(decoding, TableDecoding):
            return indexes
        decoder = block_decoder(decoding.plan)
        if not decoder.can_presume():
            return indexes
        part = block if len(indexes) == block.num_rows else block.take(indexes)
        before = dict(counts.notes)
        start, others = 0, [indexes[:0]]
        for piece in blocks_of(part, len(decoding.plan.fields)):
            batches, left = decoder.decode_presumed(piece, counts, table)
            for outcomes in () if stream.news.is_any else batches:
                yield from self._packed(decoding.index, outcomes)
            others.append(left + start)
            start += piece.num_rows
        unread = np.concatenate(others)
        if self.plan.follows_fields and counts.notes != before:
            read = part.take(np.setdiff1d(np.arange(part.num_rows), unread)) if len(unread) else part
            stream.news.look_at_notes(read, table, decoding, before, counts.notes)
        if len(unread) > _PRESUMED_SHARE * len(indexes):
            shared.sorter.forget(table)
        return indexes[unread]

    def _sort_carefully(
        self,
        block: RecordBlock,
        indexes: RowIndexes,
        by_table: dict[SourceTable | None, RowIndexes],
        dead: dict[int, tuple[str, str | None]],
        stream: _BatchStream,
    ) -> None:
        """Sorts the records that the sorter could not; what is no change of a table is counted here."""
        format_name, counts = self.plan.ledger.format, stream.counts
        more: dict[SourceTable, list[int]] = {}
        for index, record in zip(indexes.tolist(), record_block.each_of(block, indexes), strict=True):
            reading = read_record(format_name, record, registry=self.plan.ledger.registry)
            table = None if isinstance(reading, Skipped) else self.plan.table_of(reading, record)
            if table is not None:
                more.setdefault(table, []).append(index)
                continue
            counts.read += 1
            if isinstance(reading, Skipped):
                counts.skipped[reading.reason] += 1
            elif self.plan.only is not None:
                counts.skipped[LEFT] += 1  # the pipeline has made a dead letter of it
            elif isinstance(reading, Dead):
                dead[index] = reading.reason, reading.column
            else:
                topic = table_of_topic(format_name, record.topic)
                dead[index] = _NAMELESS if topic is None else _OF_NO_TABLE.format(table=topic), None
        for table, found in more.items():
            _add(by_table, table, np.array(found, np.int64))

    def _sort_tombstones(
        self,
        block: RecordBlock,
        indexes: RowIndexes,
        by_table: dict[SourceTable | None, RowIndexes],
        dead: dict[int, tuple[str, str | None]],
        stream: _BatchStream,
    ) -> None:
        """Sorts those of unwrapped rows by their topics; of tables that are not known they are dead letters."""
        for table, own in tables_of_topics(self.plan.ledger.format, block, indexes):
            if self.plan.stands_for(table):
                _add(by_table, table, own)
                continue
            stream.counts.read += len(own)
            if self.plan.only is not None:
                stream.counts.skipped[LEFT] += len(own)  # the pipeline has made dead letters of them
            else:
                dead |= dict.fromkeys(own.tolist(), (_OF_NO_TABLE.format(table=table), None))

    def _of_table(
        self, block: RecordBlock, table: SourceTable, indexes: RowIndexes, stream: _BatchStream, shared: _Shared
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        counts = stream.counts
        decoding = self.plan.tables.get(table)
        if decoding is None:
            counts.read += len(indexes)
            route = route_of(self.plan.config, table)
            if isinstance(route, Route) and self.plan.only not in (None, route.target):
                counts.skipped[LEFT] += len(indexes)
            elif isinstance(route, Route):
                stream.news.describe(block, table, indexes)
            elif self.plan.is_replay and route != EXCLUDED:
                yield from self._kept(block, indexes, f"{route}: {table}", stream, shared)
            else:
                counts.skipped[f"{route}: {table}"] += len(indexes)
            return
        if isinstance(decoding, Held) and decoding.is_nothing:
            yield from self._of_nothing(block, table, indexes, stream, shared)
            return
        if isinstance(decoding, Held) and self.plan.is_replay:
            counts.read += len(indexes)
            yield from self._kept(block, indexes, f"{decoding.reason}: {table}", stream, shared)
            return
        if isinstance(decoding, Held):
            counts.read += len(indexes)
            counts.skipped[f"{decoding.reason}: {table}"] += len(indexes)
            return
        part = block if len(indexes) == block.num_rows else block.take(indexes)
        yield from self._of_plan(part, table, decoding, stream)

    def _kept(
        self, block: RecordBlock, indexes: RowIndexes, reason: str, stream: _BatchStream, shared: _Shared
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        """Dead letters that stay what they are."""
        if not stream.news.is_any:
            dead: dict[int, tuple[str, str | None]] = dict.fromkeys(indexes.tolist(), (reason, None))
            yield from self._packed(NO_TABLE, shared.writer.block(block, 0).dead(dead))

    def _of_plan(
        self, part: RecordBlock, table: SourceTable, decoding: TableDecoding, stream: _BatchStream
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        counts = stream.counts
        if self.plan.follows_fields:
            stream.news.look_at_schemas(part, table, decoding, may_be_wrapped=stream.may_be_wrapped)
        if stream.news.is_any and not self.plan.guesses:
            counts.read += part.num_rows
            return
        before = dict(counts.notes)
        for piece in blocks_of(part, 1 if decoding.plan.is_avro else len(decoding.plan.fields)):
            for outcomes in block_decoder(decoding.plan).decode(piece, counts):
                if not stream.news.is_any:
                    yield from self._packed(decoding.index, outcomes)
            if counts.truncates:
                stream.truncated += [TruncatedAt(decoding.index, *place) for place in counts.truncates]
                counts.truncates.clear()
        if self.plan.follows_fields and not decoding.plan.is_avro:
            stream.news.look_at_notes(part, table, decoding, before, counts.notes)

    def _of_nothing(
        self, block: RecordBlock, table: SourceTable, indexes: RowIndexes, stream: _BatchStream, shared: _Shared
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        """Records of a table that is not there, of which none has said yet what it would be."""
        dead: dict[int, tuple[str, str | None]] = {}
        stream.counts.read += len(indexes)
        for index, record in zip(indexes.tolist(), record_block.each_of(block, indexes), strict=True):
            reading = read_record(self.plan.ledger.format, record, registry=self.plan.ledger.registry)
            changes = changes_of(reading)
            if isinstance(reading, Dead):
                dead[index] = (reading.reason, reading.column)
            elif isinstance(reading, Skipped | Truncate) or all(each.kind == RowKind.DELETE for each in changes):
                reason = reading.reason if isinstance(reading, Skipped) else f"{NOTHING}: {table}"
                stream.counts.skipped[reason] += 1
            else:
                described = stream.news.described(record, record_block.where(block, index))
                if described.is_empty:
                    dead[index] = (_SAYS_NOTHING, None)
                else:
                    stream.news.note(table, described)
                    return  # the batch is run once more
        if dead and not stream.news.is_any:
            yield from self._packed(NO_TABLE, shared.writer.block(block, 0).dead(dead))


@dataclass(slots=True)
class _Shared:
    """What one process keeps for a pipeline."""

    writer: OutcomeWriter
    sorter: RecordSorter
    schemas: dict[Any, KnownSchemas] = field(default_factory=dict)


def _add(by_table: dict[SourceTable | None, RowIndexes], table: SourceTable, indexes: RowIndexes) -> None:
    known = by_table.get(table)
    by_table[table] = indexes if known is None else np.sort(np.concatenate([known, indexes]))


@lru_cache(8)
def _shared(ledger: DecodePlan) -> _Shared:
    return _Shared(OutcomeWriter(ledger), RecordSorter(ledger.format, ledger.registry))
