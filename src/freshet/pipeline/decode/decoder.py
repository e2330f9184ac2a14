"""The decoder: batches of raw records in, batches of outcomes out, one tally at the end; no Spark, no broker.

    record batch ─ blocks ─ by schema ─┬─ fast: structs or columns ────┬─ columns of the table, rules ─ outcomes
                                       └─ careful: one by one ─────────┘
                            what many careful records have in common is learned: the fast path takes it from then on

A record that breaks a rule becomes a dead letter or takes the careful path; the others stay on the fast one. A record
that must stop the run, or an error, ends the stream; the tally says why.

Source: docs/reference/debezium.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._garbage import collect_now_and_then, without_gc
from freshet._lazy import LazyModule
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.careful import CarefulReader, Rows, UnknownFields, images_of, shown_name
from freshet.pipeline.decode.change import Change, Dead, Several, Skipped, Truncate
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.fast.learned_readers import LearnedReaders
from freshet.pipeline.decode.fast.reader import at_rows
from freshet.pipeline.decode.fast.structs import can_be_member
from freshet.pipeline.decode.images import Findings, Images, Note, RowIndexes
from freshet.pipeline.decode.inputs import FactsKey
from freshet.pipeline.decode.new_fields import described_fields, new_names
from freshet.pipeline.decode.outcome_batches import BlockWriter, OutcomeWriter
from freshet.pipeline.decode.outcomes import SeenSchema, SeenTable, Tally, TruncatedAt
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock, block_of, blocks_within
from freshet.pipeline.decode.skipped_records import with_culprit, without_skipped
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.decode.tables_seen import TablesSeen
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.storage.exceptions import RetryableError

if TYPE_CHECKING:
    from freshet.pipeline.decode.avro import reader as _avro
else:
    _avro = LazyModule("freshet.pipeline.decode.avro.reader")

BLOCK_VALUES: Final = 128 * 1024
BLOCK_RECORDS: Final = 16_384
BLOCK_BYTES: Final = 32 * 1024 * 1024
"""A block is decoded at once; a record longer than this is a block of its own. The values of a block, which are Python
objects for a moment, should stay in the processor's cache: of a hundred columns, 8000 records at once cost five
times as much per value as 500. Those of Avro are no objects."""
BLOCK_BYTES_OF_SEVERAL: Final = 2 * 1024 * 1024
"""The same for records of several rows, whose number shows in their length alone: messages of 100 rows cost half as
much per row as in blocks of 32 MiB."""

DECODERS_MAX: Final = 512
"""What one process keeps of plans: as many as the tables of a large database."""

_LEARN_ROUNDS: Final = 4
_THE_TABLE: Final = SourceTable("", "", "")
"""Of a source that has one."""
_TRUNCATED: Final = (
    ": the source table was truncated and on_truncate is fail; set on_truncate: apply, or "
    "delete the rows of the table yourself, set on_truncate: skip, and start again"
)
_UNKNOWN: Final = (
    "; on_unknown_field is fail: add the field to the table or to `schema`, or set on_unknown_field: add or ignore"
)


@dataclass(frozen=True, slots=True)
class RecordDecoder:
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
            counts.sizes = counts.sizes.joined(records.sizes())
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
                        described = described_fields(self.plan, block, new_names(counts.notes, before, ()))
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

    def named(self, plan: DecodePlan) -> tuple[SeenTable, ...]:
        """The tables, if the source may have only one."""
        if plan.only is not None:
            return ()
        return tuple(SeenTable(plan.source_index, table, where) for table, where in self.tables.items())


class BlockDecoder:
    """What one process knows of one source: the structs made so far, and what they were made from."""

    def __init__(self, plan: DecodePlan, is_careful: bool) -> None:
        self.plan = plan
        self.writer = OutcomeWriter(plan)
        self._careful = CarefulReader(plan)
        self._tables = TablesSeen(plan)
        self._fast = LearnedReaders(plan, self._careful, self._tables)
        names = {each.name for each in plan.fields}
        flat = plan.format == "debezium-unwrapped"
        read = {each.name for each in self._careful.inputs(None).all} | {plan.kind_field or ""}
        envelopes = ({"event_count", "data_collections"}, {"source", "databaseName"}, {"schema", "payload"})
        looks_like_others = flat and any(marks <= names for marks in envelopes)
        is_unfit = looks_like_others or not all(map(can_be_member, read))
        self._is_always_careful = is_careful or (is_unfit and not plan.is_avro)
        self._avro = _avro.AvroReaders(plan, self._careful, self._tables) if plan.is_avro else None
        self._heartbeats = flat and "ts_ms" in names

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
        images, careful = self._read(block, indexes, findings)
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
        if findings.dead:
            yield context.dead(findings.dead)
        counts.skipped.update(findings.skipped)
        counts.truncates += [raw_records.place(block, index) for index in findings.truncates]
        for table, index in findings.tables.items():
            if table not in counts.tables:
                counts.tables[table] = raw_records.where(block, index)
        _count(notes, counts)

    # --- records of one table alone -----------------------------------------------------------------------------------

    def can_presume(self) -> bool:
        """Whether there are structs that refuse records of any table but one."""
        return not self._is_always_careful and self._avro is None and self._fast.can_refuse_tables()

    def decode_presumed(
        self, block: RecordBlock, counts: Counts, table: SourceTable
    ) -> tuple[list[pa.RecordBatch], RowIndexes]:
        """The outcomes of the records that the fast path takes for changes of this table, and the indexes of all others
        whose values are not NULL: they are not counted, and `decode` takes them where they are of the table."""
        findings, notes = Findings(), list[Note]()
        able, left = self._readable(block, block.present())
        read = self._fast.reader(None, (table,)).read(block.values(able), able)
        findings.skipped.update(read.skipped)
        findings.dead.update(read.dead)
        context = self.writer.block(block, counts.read)
        batches, broken = _written(context, read.images, findings, notes)
        left = np.unique(np.concatenate([left, read.careful, broken]))
        if findings.dead:
            batches.append(context.dead(findings.dead))
        counts.read += block.num_rows - len(left)
        counts.skipped.update(findings.skipped)
        _count(notes, counts)
        return batches, left

    # --- the fast path ------------------------------------------------------------------------------------------------

    def _read(self, block: RecordBlock, indexes: RowIndexes, findings: Findings) -> tuple[list[Images], RowIndexes]:
        """The images of the records that take the fast path, and the other records, from which it learns."""
        if self._is_always_careful or not len(indexes):
            return [], indexes
        if self._avro is not None:
            return self._avro.read(block, block.column(raw_records.VALUE), indexes, findings)
        for _ in range(_LEARN_ROUNDS):
            images, careful, detoured, read = self._read_fast(block, indexes)
            if not self._fast.learn(block, careful, detoured, len(indexes)):
                break
        if self._tables.decide():
            self._fast.renew()
        findings.skipped.update(read.skipped)
        findings.dead.update(read.dead)
        findings.tables.update(read.tables)
        return images, careful

    def _read_fast(
        self, block: RecordBlock, indexes: RowIndexes
    ) -> tuple[list[Images], RowIndexes, RowIndexes, Findings]:
        able, careful = self._readable(block, indexes)
        images: list[Images] = []
        found = Findings()
        left, detoured = [careful], [careful[:0]]
        for group in self._fast.groups(block, able):
            reader = self._fast.reader(group.facts)
            if self._tables.must_sort(reader.only, self._careful.inputs(group.facts)):
                group, unread = self._tables.sort(group, found)
                left.append(unread)
            read = reader.read(group.values, group.indexes)
            self._tables.read_alone(reader.only, group.indexes, read.careful, found)
            left.append(read.careful)
            detoured.append(read.detoured)
            found.skipped.update(read.skipped)
            found.dead.update(read.dead)
            images += read.images
        return images, np.sort(np.concatenate(left)), np.sort(np.concatenate(detoured)), found

    def _readable(self, block: RecordBlock, indexes: RowIndexes) -> tuple[RowIndexes, RowIndexes]:
        """The indexes of values that are there and UTF-8 throughout, and the others."""
        there = block.present() if self.plan.format == "debezium-unwrapped" else indexes
        able = np.zeros(block.num_rows, bool)
        able[there] = True
        able[block.broken_texts(there)] = False
        if self._heartbeats:
            keys = block.column(raw_records.KEY).cast(pa.large_binary())
            marked = pc.match_substring(keys, b'"serverName"').fill_null(False)
            able &= ~marked.to_numpy(zero_copy_only=False)
        return np.flatnonzero(able), indexes[~able[indexes]]

    # --- the careful path ---------------------------------------------------------------------------------------------

    def _one_by_one(
        self, block: RecordBlock, indexes: RowIndexes, findings: Findings, begins: bool
    ) -> dict[FactsKey, dict[int, Rows]]:
        found: dict[FactsKey, dict[int, Rows]] = {}
        if not len(indexes):
            return found
        for index, record in zip(indexes.tolist(), raw_records.each_of(block, indexes), strict=True):
            reading: Any = self._tables.judged(self._careful.read(record), index, findings)
            if isinstance(reading, Change | Several):
                around = raw_records.RecordsAround(block, index, begins)
                reading = self._careful.rows(reading, record, around)
            match reading:
                case Rows(facts=facts):
                    found.setdefault(facts, {})[index] = reading
                case Skipped(reason):
                    findings.skipped[reason] += 1
                case Dead(reason, column):
                    findings.dead[index] = (reason, column)
                case Truncate():
                    if self.plan.on_truncate == "fail":
                        raise StoppedByRecordError("truncate record at " + raw_records.where(block, index) + _TRUNCATED)
                    if self.plan.on_truncate == "apply":
                        findings.truncates.append(index)
                    findings.skipped["truncate"] += 1
                case UnknownFields(names):
                    shown = f"unknown field {', '.join(map(shown_name, names))}"
                    raise StoppedByRecordError(f"{shown} in the record at {raw_records.where(block, index)}{_UNKNOWN}")
        return found


@lru_cache(DECODERS_MAX)
def block_decoder(plan: DecodePlan, is_careful: bool = False) -> BlockDecoder:
    """That of this process for a plan."""
    return BlockDecoder(plan, is_careful)


def blocks_of(records: RecordBlock, field_count: int, bytes_max: int = BLOCK_BYTES) -> Iterator[RecordBlock]:
    """Slices of limited size, of records with so many fields."""
    records_max = max(1, min(BLOCK_RECORDS, BLOCK_VALUES // max(1, field_count)))
    return blocks_within(records, records_max, bytes_max)


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


def _without(notes: Any, broken: RowIndexes) -> list[Note]:
    if not len(broken):
        return list(notes)
    return [Note(note.text, np.setdiff1d(np.asarray(note.records, np.int64), broken)) for note in notes]
