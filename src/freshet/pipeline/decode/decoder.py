"""The decoder: batches of raw records in, batches of outcomes out, one tally at the end; no Spark, no broker.

    record batch ─ blocks ─┬─ parser of the format ─ columns ─ evaluator ─┬─ columns of the table, rules ─ outcomes
                           └─ careful: what these reject, one by one ─────┘

A record that breaks a rule becomes a dead letter or takes the careful path. A record that must stop the run, or an
error, ends the stream; the tally says why.

Records that whoever starts a pipeline has named to be skipped are dead letters without anybody looking into them.

Source: docs/reference/debezium.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet._garbage import collect_now_and_then, without_gc
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.config.formats import AVRO_FORMATS
from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.decode import raw_records, record_block
from freshet.pipeline.decode.careful import CarefulReader, RecordRows, UnknownFields, images_of, shown_name
from freshet.pipeline.decode.change import Change, Dead, Several, Skipped, Truncate
from freshet.pipeline.decode.column_block import columns_of
from freshet.pipeline.decode.described_table import (
    DescribedTable,
    described_fields,
    fields_of,
    joined_tables,
    new_names,
)
from freshet.pipeline.decode.evaluator import RecordParser, at_rows
from freshet.pipeline.decode.images import Findings, Images, Note, RowIndexes
from freshet.pipeline.decode.inputs import FactsKey
from freshet.pipeline.decode.json.parser import JsonParser
from freshet.pipeline.decode.outcome_batches import BlockWriter, OutcomeWriter
from freshet.pipeline.decode.outcomes import EventTimes, SeenSchema, SeenTable, Tally, TruncatedAt, joined_times
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock, block_of, blocks_within
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.decode.tables_seen import TablesSeen
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ErrorDocument, error_document
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.storage.exceptions import RetryableError

BLOCK_VALUES: Final = 128 * 1024
BLOCK_RECORDS: Final = 16_384
BLOCK_BYTES: Final = 32 * 1024 * 1024
"""A block is decoded at once; a record longer than this is a block of its own. The values of a block, which are Python
objects for a moment, should stay in the processor's cache: of a hundred columns, 8000 records at once cost five
times as much per value as 500. Those of Avro are no objects."""
BLOCK_BYTES_OF_SEVERAL: Final = 2 * 1024 * 1024
"""The same for records of several rows, whose number shows in their length alone: messages of 100 rows cost half as
much per row as in blocks of 32 MiB."""


def _avro_parser(plan: DecodePlan, careful: CarefulReader, tables: TablesSeen) -> RecordParser:
    from freshet.pipeline.decode.avro.reader import AvroParser

    return AvroParser(plan, careful, tables)


PARSERS: Final[dict[str, Callable[[DecodePlan, CarefulReader, TablesSeen], RecordParser]]] = {
    **dict.fromkeys(
        ("debezium-json", "debezium-unwrapped", "canal-json", "maxwell-json", "json", "row-kind"), JsonParser
    ),
    **dict.fromkeys(AVRO_FORMATS, _avro_parser),
}
"""By format; records of one that has none take the careful path."""

DECODERS_MAX: Final = 512
"""What one process keeps of plans: as many as the tables of a large database."""

_THE_TABLE: Final = SourceTable("", "", "")
"""The table of a source that has one."""
_TRUNCATED: Final = (
    ": the source table was truncated and on_truncate is fail; set on_truncate: apply, or "
    "delete the rows of the table yourself, set on_truncate: skip, and start again"
)
_UNKNOWN: Final = (
    "; on_unknown_field is fail: add the field to the table or to `schema`, or set on_unknown_field: add or ignore"
)


class RecordDecoder(Frozen):
    """The decoder of one source; a small value that travels to the workers. Call it once per stream of batches."""

    plan: DecodePlan
    is_careful: bool = False
    """Reads every record by the careful path: slow, and the reference for the fast one."""

    def __call__(self, batches: Iterator[pa.RecordBatch] | Iterator[RecordBlock]) -> Iterator[pa.RecordBatch]:
        """Takes record batches of `raw_records` or blocks of them, gives batches of `outcomes`.

        An error that the same records would raise again is reported in the tally, which then ends the stream: Spark
        would only repeat the task.
        """
        with without_gc():
            yield from self._decoded(batches)

    def _decoded(self, batches: Iterator[pa.RecordBatch] | Iterator[RecordBlock]) -> Iterator[pa.RecordBatch]:
        state = block_decoder(self.plan, self.is_careful)
        counts = Counts()
        bytes_max = BLOCK_BYTES_OF_SEVERAL if self.plan.has_several_rows else BLOCK_BYTES
        seen: DescribedTable | None = None
        for batch in batches:
            records = block_of(batch)
            counts.saw(records)
            for block in blocks_of(records, 1 if self.plan.is_avro else len(self.plan.fields), bytes_max):
                if self.plan.skips:
                    count = block.num_rows
                    block, dead = without_skipped(block, self.plan.skips, state.writer)
                    counts.read += count - block.num_rows
                    if dead is not None:
                        yield dead
                before = dict(counts.notes)
                collect_now_and_then()
                try:
                    outcomes = list(state.decode(block, counts))
                    if self.plan.on_unknown == "add":
                        names = new_names(counts.notes, before, ())
                        described = _described(self.plan, block, names)
                        if described is not None:
                            seen = described if seen is None else seen.joined(described)
                except RetryableError:
                    raise  # of a schema registry; Spark may try the task again
                except REPEATING_ERRORS as error:
                    failed = with_culprit(error, block, lambda part: list(state.decode(part, Counts())))
                    yield state.writer.tally(Tally(counts.read, error=failed))
                    return
                yield from outcomes
        if counts.read:
            tally = Tally(
                counts.read,
                counts.skipped,
                counts.notes,
                tables=counts.named(self.plan),
                sizes=counts.sizes,
                times=counts.times,
                truncated=tuple(TruncatedAt(0, *place) for place in counts.truncates),
                seen=() if seen is None else (SeenSchema(_THE_TABLE, seen.to_document()),),
            )
            yield state.writer.tally(tally)

    def tally(self, tally: Tally) -> pa.RecordBatch:
        """What whoever reads the records has to say besides, as a batch of `outcomes`."""
        return block_decoder(self.plan, self.is_careful).writer.tally(tally)


@dataclass(slots=True)
class Counts:
    """What one stream of batches has had."""

    read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    tables: dict[SourceTable, str] = field(default_factory=dict)
    """The place of the first record of each."""
    truncates: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, partition and offset of each truncate that is applied."""
    sizes: RecordSizes = NOTHING_SEEN
    times: EventTimes | None = None

    def saw(self, records: RecordBlock) -> None:
        """Takes what is known of some records as they are."""
        self.sizes = self.sizes.joined(records.sizes())
        self.times = joined_times(self.times, records.times())

    def named(self, plan: DecodePlan) -> tuple[SeenTable, ...]:
        """The tables, if the source may have only one."""
        if plan.only is not None:
            return ()
        return tuple(SeenTable(plan.source_index, table, where) for table, where in self.tables.items())


class BlockDecoder:
    """What one process knows of one source: what its parser has made so far, and what that was made from."""

    def __init__(self, plan: DecodePlan, is_careful: bool) -> None:
        self.plan = plan
        self.writer = OutcomeWriter(plan)
        self._careful = CarefulReader(plan)
        self._tables = TablesSeen(plan)
        parser = None if is_careful else PARSERS.get(plan.format)
        self._parser = None if parser is None else parser(plan, self._careful, self._tables)
        self._of_columns: RecordParser | None = None

    def decode(self, block: RecordBlock, counts: Counts) -> Iterator[pa.RecordBatch]:
        """The outcomes of one block."""
        findings = Findings()
        first = counts.read
        counts.read += block.num_rows
        indexes = block.present()
        tombstones = block.num_rows - len(indexes)
        if tombstones and self.plan.format == "debezium-unwrapped":
            indexes = np.arange(block.num_rows)
        elif tombstones:
            findings.skipped["tombstone"] += tombstones
        images, careful = list[Images](), indexes
        parser = self._parser_of(block)
        if parser is not None and len(indexes):
            images, careful = parser.read(block, indexes, findings)
        context = self.writer.block(block, first)
        notes: list[Note] = []
        images, moved = _without_moved(block, images)
        careful = np.union1d(careful, moved)
        batches, broken = _written(context, images, findings, notes)
        yield from batches
        careful = np.union1d(careful, broken)
        begins = not first and self.plan.has_whole_ranges
        for facts, found in self._one_by_one(block, careful, findings, begins).items():
            each = images_of(self.plan, self._careful.inputs(facts), found)
            batch, broken = context.rows(each, findings.dead)
            notes += _without(each.notes, broken)
            if batch is not None:
                yield batch
        yield from context.refused
        if findings.dead:
            yield context.dead(findings.dead)
        counts.skipped.update(findings.skipped)
        counts.truncates += [record_block.place(block, index) for index in findings.truncates]
        for table, index in findings.tables.items():
            if table not in counts.tables:
                counts.tables[table] = record_block.where(block, index)
        _count(notes, counts)

    def _parser_of(self, block: RecordBlock) -> RecordParser | None:
        columns = columns_of(block)
        if columns is None or self._parser is None:
            return self._parser
        if self._of_columns is None:
            self._of_columns = columns.parser(self.plan, self._careful, self._tables)
        return self._of_columns

    # --- records of one table alone -----------------------------------------------------------------------------------

    def can_presume(self) -> bool:
        """Whether the parser can refuse records of any table but one."""
        return self._parser is not None and self._parser.can_presume()

    def decode_presumed(
        self, block: RecordBlock, counts: Counts, table: SourceTable
    ) -> tuple[list[pa.RecordBatch], RowIndexes]:
        """The outcomes of the records that the parser takes for changes of this table, and the indexes of all others
        whose values are not NULL: they are not counted, and `decode` takes them where they are of the table."""
        assert self._parser is not None
        findings, notes = Findings(), list[Note]()
        images, left = self._parser.read_presumed(block, table, findings)
        context = self.writer.block(block, counts.read)
        batches, broken = _written(context, images, findings, notes)
        left = np.unique(np.concatenate([left, broken]))
        batches += context.refused
        if findings.dead:
            batches.append(context.dead(findings.dead))
        counts.read += block.num_rows - len(left)
        counts.skipped.update(findings.skipped)
        _count(notes, counts)
        return batches, left

    # --- the careful path ---------------------------------------------------------------------------------------------

    def _one_by_one(
        self, block: RecordBlock, indexes: RowIndexes, findings: Findings, begins: bool
    ) -> dict[FactsKey, dict[int, RecordRows]]:
        found: dict[FactsKey, dict[int, RecordRows]] = {}
        if not len(indexes):
            return found
        for index, record in zip(indexes.tolist(), record_block.each_of(block, indexes), strict=True):
            reading: Any = self._tables.judged(self._careful.read(record), index, findings)
            if isinstance(reading, Change | Several):
                around = record_block.RecordsAround(block, index, begins)
                reading = self._careful.rows(reading, record, around)
            match reading:
                case RecordRows(facts=facts):
                    found.setdefault(facts, {})[index] = reading
                case Skipped(reason):
                    findings.skipped[reason] += 1
                case Dead(reason, column):
                    findings.dead[index] = (reason, column)
                case Truncate():
                    if self.plan.on_truncate == "fail":
                        raise StoppedByRecordError(
                            "truncate record at " + record_block.where(block, index) + _TRUNCATED
                        )
                    if self.plan.on_truncate == "apply":
                        findings.truncates.append(index)
                    findings.skipped["truncate"] += 1
                case UnknownFields(names):
                    shown = f"unknown field {', '.join(map(shown_name, names))}"
                    raise StoppedByRecordError(f"{shown} in the record at {record_block.where(block, index)}{_UNKNOWN}")
        return found


@lru_cache(DECODERS_MAX)
def block_decoder(plan: DecodePlan, is_careful: bool = False) -> BlockDecoder:
    """The decoder of this process for a plan."""
    return BlockDecoder(plan, is_careful)


def blocks_of(records: RecordBlock, field_count: int, bytes_max: int = BLOCK_BYTES) -> Iterator[RecordBlock]:
    """Slices of limited size, of records with so many fields."""
    records_max = max(1, min(BLOCK_RECORDS, BLOCK_VALUES // max(1, field_count)))
    return blocks_within(records, records_max, bytes_max)


def _described(plan: DecodePlan, block: RecordBlock, names: Iterable[str]) -> DescribedTable | None:
    """What the records of a block say of fields that nothing reads."""
    columns = columns_of(block)
    if columns is None:
        return described_fields(plan, block, names)
    whole = joined_tables(columns.described())
    return fields_of(plan, names, lambda shown: whole)


def _written(
    context: BlockWriter, images: Sequence[Images], findings: Findings, notes: list[Note]
) -> tuple[list[pa.RecordBatch], RowIndexes]:
    """The batches of what the fast path has read, and the records of several rows of which one breaks a rule."""
    batches, left = [], [np.zeros(0, np.int64)]
    for each in images:
        # The only row of a record is checked here; of two rows, the careful path finds the one that is wrong.
        is_alone = not each.subs.any()
        batch, broken = context.rows(each, findings.dead if is_alone else None)
        if not is_alone:
            left.append(broken)
        notes += _without(each.notes, broken)
        if batch is not None:
            batches.append(batch)
    return batches, np.concatenate(left)


def _without_moved(block: RecordBlock, images: Sequence[Images]) -> tuple[list[Images], RowIndexes]:
    """The images without rows that lack values and had another key before, and the records of these."""
    kept, moved = [], [np.zeros(0, np.int64)]
    for each in images:
        lacking = np.logical_or.reduce([*each.missing.values(), np.zeros(len(each.records), bool)])
        rows = np.flatnonzero(lacking)
        if len(rows):
            is_moved = block.taken(raw_records.OLD_KEY, each.records[rows]).is_valid().to_numpy(zero_copy_only=False)
            if is_moved.any():
                gone = each.records[rows[is_moved]]
                moved.append(gone)
                each = replace(
                    at_rows(each, np.flatnonzero(~np.isin(each.records, gone))), notes=_without(each.notes, gone)
                )
        if len(each.records):
            kept.append(each)
    return kept, np.concatenate(moved)


def _count(notes: Sequence[Note], counts: Counts) -> None:
    for note in notes:
        if len(note.records):
            counts.notes[note.text] += len(note.records)


def _without(notes: Sequence[Note], broken: RowIndexes) -> list[Note]:
    if not len(broken):
        return list(notes)
    return [Note(note.text, np.setdiff1d(np.asarray(note.records, np.int64), broken)) for note in notes]


SKIPPED: Final = "skipped by --skip-record"


def without_skipped(
    block: RecordBlock, places: Collection[RecordPlace], writer: OutcomeWriter
) -> tuple[RecordBlock, pa.RecordBatch | None]:
    """The other records of a block, and the dead letters of those at these places; None where there are none."""
    offsets = block.column(raw_records.OFFSET).to_numpy(zero_copy_only=False)
    near = np.flatnonzero(np.isin(offsets, [each.offset for each in places]))
    gone = [index for index in near.tolist() if record_block.place(block, index) in places]
    if not gone:
        return block, None
    dead = writer.block(block, 0).dead(dict.fromkeys(gone, (SKIPPED, None)))
    return block.take(np.setdiff1d(np.arange(block.num_rows), gone)), dead


def with_culprit(error: Exception, block: RecordBlock, decode: Callable[[RecordBlock], object]) -> ErrorDocument:
    """The document of an error that decoding a block raised, which names the record where one alone raises it."""
    document = error_document(error)
    if isinstance(error, StoppedByRecordError) or not document["text"]:
        return document
    while block.num_rows > 1:
        half = block.num_rows // 2
        parts = (block.slice(0, half), block.slice(half, block.num_rows - half))
        failing = next((part for part in parts if _fails(part, decode)), None)
        if failing is None:
            return document
        block = failing
    topic, partition, offset = record_block.place(block, 0)
    if partition is None:
        return document
    place = RecordPlace(topic, partition, offset)
    text = (
        f"{document['text']}; this is raised by the record {place}, and --skip-record {place} makes a dead letter of it"
    )
    return {**document, "text": text}


def _fails(block: RecordBlock, decode: Callable[[RecordBlock], object]) -> bool:
    try:
        decode(block)
    except REPEATING_ERRORS:
        return True
    return False
