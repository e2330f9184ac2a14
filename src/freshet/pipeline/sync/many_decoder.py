"""The decoder of a source of many tables: raw records in, packed outcomes of each table out, and what is new in them.

    batch ─ blocks ─ by source table ─┬─ known: the decoder of its plan ─ outcomes ─ packed by task
                                      ├─ held back, excluded, no rule takes it: counted
                                      └─ new, or with new fields or names: told (`SeenSchema`), for the driver to follow

A batch in which something is new is not committed: the driver follows it, and the batch is run once more. So from there
on only what is new is looked for, and nothing is decoded.

Rows, dead letters and tallies cross as (task, table, Arrow's bytes). Those of no table have the number 0, the ledger's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.batch.packed_rows import PackRule, packed_value
from freshet.pipeline.config.sync import SyncConfig
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.avro.wire import HEAD_BYTES
from freshet.pipeline.decode.change import Dead, RawRecord, Skipped, Truncate, changes_of
from freshet.pipeline.decode.debezium import SCHEMA_CHANGE
from freshet.pipeline.decode.decoder import Counts, block_decoder, blocks_of, without_gc
from freshet.pipeline.decode.described_table import DescribedTable, describe_record, describe_records, union_type
from freshet.pipeline.decode.fast.schemas_seen import SCHEMAS_MAX, schema_prefix, schema_texts
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.new_fields import SAMPLE, TYPED_SAMPLE, new_names, placed_records, records_with
from freshet.pipeline.decode.outcome_batches import OutcomeWriter
from freshet.pipeline.decode.outcomes import SeenSchema, Tally, TruncatedAt
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.reading import read_record
from freshet.pipeline.decode.schema_changes import FoundRenames, renames_in, schema_change_of
from freshet.pipeline.decode.source_table import SourceTable, part_names, table_of
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, error_document
from freshet.pipeline.sync.field_versions import WRAPPED, VersionSorter
from freshet.pipeline.sync.record_sorter import RecordSorter
from freshet.pipeline.sync.renames import NO_RENAMES, Renames, with_names
from freshet.pipeline.sync.routes import Route, route_of
from freshet.pipeline.sync.table_decoding import TableDecoding
from freshet.storage.exceptions import RetryableError
from freshet.storage.model.row_kind import RowKind

NO_TABLE: Final = 0
"""The number of the ledger, under which what belongs to no table crosses."""

_SAMPLE_OF_BLOCK: Final = 60
LEFT: Final = "left to the pipeline"
HELD: Final = "held back, its table is set apart"
NOTHING: Final = "a deletion or a truncate, and there is no such table"
_SAYS_NOTHING: Final = "the record says nothing of the columns of its table, which is not there yet"
_NAMELESS: Final = "the record does not say which table it is of"


class Held(NamedTuple):
    """Instead of the decoding of a source table: why its records are passed over."""

    reason: str
    is_nothing: bool = False
    """Of a batch that had deletions alone when it was looked at: each record is looked at, whether it is one."""


@dataclass(frozen=True, slots=True)
class ManyPlan:
    """What the decoders of a batch know: a value that travels to the workers.

    `tables` are the source tables that are known, `rules` the task of each outcome by the number of its target.
    """

    config: SyncConfig
    ledger: DecodePlan
    tables: Mapping[SourceTable, TableDecoding | Held]
    rules: tuple[PackRule, ...]
    follows_fields: bool
    guesses: bool
    only: str | None = None
    """The one target that is written, where records of others are left to the pipeline."""
    renames: Mapping[str, Renames] = field(default_factory=dict)
    """What is known of renamed columns, by target, there or not."""


@dataclass(slots=True)
class _Stream:
    """One stream of batches."""

    counts: Counts = field(default_factory=Counts)
    seen: dict[SourceTable, DescribedTable] = field(default_factory=dict)
    looked_at: Counter[SourceTable] = field(default_factory=Counter)
    """Records of new tables."""
    truncated: list[TruncatedAt] = field(default_factory=list)
    renamed: dict[SourceTable, list[FoundRenames]] = field(default_factory=dict)

    @property
    def has_news(self) -> bool:
        """From then on nothing is decoded."""
        return bool(self.seen or self.renamed)

    def news(self) -> tuple[SeenSchema, ...]:
        """What is new, for the driver."""
        found = []
        for table in {**self.seen, **self.renamed}:
            described = self.seen[table].to_document() if table in self.seen else []
            found.append(SeenSchema(table, described, [each.to_document() for each in self.renamed.get(table, ())]))
        return tuple(found)

    def note(self, table: SourceTable, described: DescribedTable) -> None:
        known = self.seen.get(table)
        self.seen[table] = described if known is None else known.joined(described)


@dataclass(frozen=True, slots=True)
class ManyDecoder:
    """Takes batches of `raw_records`, gives (task, table, packed outcomes); a value that travels to the workers."""

    plan: ManyPlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.Buffer]]:
        """As `RecordDecoder`: an error that would come again is reported in the tally, which ends the stream."""
        stream, shared = _Stream(), _shared(self.plan.ledger)
        for batch in batches:
            stream.counts.sizes = stream.counts.sizes.joined(raw_records.sizes_of(batch))
            for block in blocks_of(batch, 1):
                try:
                    with without_gc():
                        outcomes = list(self._decoded(block, stream, shared))
                except RetryableError:
                    raise
                except REPEATING_ERRORS as error:
                    yield from self.tally(Tally(stream.counts.read, error=error_document(error)))
                    return
                yield from outcomes
        counts = stream.counts
        if counts.read:
            tally = Tally(counts.read, counts.skipped, counts.notes, sizes=counts.sizes, seen=stream.news())
            yield from self.tally(replace(tally, truncated=tuple(stream.truncated)))

    def tally(self, tally: Tally) -> Iterator[tuple[int, int, pa.Buffer]]:
        """What whoever reads the records has to say, packed."""
        yield from self._packed(NO_TABLE, _shared(self.plan.ledger).writer.tally(tally))

    def _packed(self, table: int, outcomes: pa.RecordBatch) -> Iterator[tuple[int, int, pa.Buffer]]:
        for task, part in self.plan.rules[table].parts(outcomes):
            yield task, table, packed_value(part)

    def _decoded(self, block: Any, stream: _Stream, shared: _Shared) -> Iterator[tuple[int, int, pa.Buffer]]:
        counts, values = stream.counts, block.column(raw_records.VALUE)
        indexes = np.arange(block.num_rows)
        if values.null_count:
            indexes = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            counts.read += block.num_rows - len(indexes)
            counts.skipped["tombstone"] += block.num_rows - len(indexes)
        by_table = dict(shared.sorter.by_table(block, indexes)) if len(indexes) else {}
        dead: dict[int, tuple[str, str | None]] = {}
        unsorted = by_table.pop(None, None)
        if unsorted is not None:
            self._sort_carefully(block, unsorted, by_table, dead, stream)
        for table, chosen in by_table.items():
            assert table is not None
            yield from self._of_table(block, table, chosen, stream, shared)
        if dead and not stream.has_news:
            yield from self._packed(NO_TABLE, shared.writer.block(block, 0).dead(dead))

    def _sort_carefully(
        self,
        block: Any,
        indexes: RowIndexes,
        by_table: dict[SourceTable | None, RowIndexes],
        dead: dict[int, tuple[str, str | None]],
        stream: _Stream,
    ) -> None:
        """Sorts the records that the sorter could not; what is no change of a table is counted here."""
        format_name, counts = self.plan.ledger.format, stream.counts
        more: dict[SourceTable, list[int]] = {}
        for index, record in zip(indexes.tolist(), raw_records.each_of(block, indexes), strict=True):
            reading = read_record(format_name, record, registry=self.plan.ledger.registry)
            table = None if isinstance(reading, Skipped) else table_of(reading.source, part_names(format_name))
            if table is not None:
                more.setdefault(table, []).append(index)
                continue
            counts.read += 1
            if isinstance(reading, Skipped):
                counts.skipped[reading.reason] += 1
                if reading.reason == SCHEMA_CHANGE and self.plan.config.schema_evolution == "evolve":
                    self._note_renames(record, raw_records.place(block, index), stream)
            elif self.plan.only is not None:
                counts.skipped[LEFT] += 1  # the pipeline has made a dead letter of it
            else:
                dead[index] = (reading.reason, reading.column) if isinstance(reading, Dead) else (_NAMELESS, None)
        for table, found in more.items():
            known = by_table.get(table)
            own = np.array(found, np.int64)
            by_table[table] = own if known is None else np.sort(np.concatenate([known, own]))

    def _of_table(
        self, block: Any, table: SourceTable, indexes: RowIndexes, stream: _Stream, shared: _Shared
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        counts = stream.counts
        decoding = self.plan.tables.get(table)
        if decoding is None:
            counts.read += len(indexes)
            route = route_of(self.plan.config, table)
            if isinstance(route, Route) and self.plan.only not in (None, route.target):
                counts.skipped[LEFT] += len(indexes)
            elif isinstance(route, Route):
                self._describe(block, table, indexes, stream, self.plan.renames.get(route.target, NO_RENAMES))
            else:
                counts.skipped[f"{route}: {table}"] += len(indexes)
            return
        if isinstance(decoding, Held) and decoding.is_nothing:
            yield from self._of_nothing(block, table, indexes, stream, shared)
            return
        if isinstance(decoding, Held):
            counts.read += len(indexes)
            counts.skipped[f"{decoding.reason}: {table}"] += len(indexes)
            return
        part = block if len(indexes) == block.num_rows else block.take(pa.array(indexes))
        if not decoding.older:
            yield from self._of_version(part, table, decoding, stream, shared)
            return
        known = shared.versions.setdefault((table, decoding.renames.to_text()), {})
        sorter = VersionSorter(decoding.renames, known, self._described_one)
        for version, piece in sorter.parts(part, is_avro=decoding.plan.is_avro):
            ranked = raw_records.with_rank(piece, decoding.ranks[version]) if decoding.ranks else piece
            yield from self._of_version(ranked, table, decoding.of_version(version), stream, shared)

    def _of_version(
        self, part: Any, table: SourceTable, decoding: TableDecoding, stream: _Stream, shared: _Shared
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        counts = stream.counts
        if self.plan.follows_fields:
            self._look_at_schemas(part, table, decoding, stream, shared)
        if stream.has_news and not self.plan.guesses:
            counts.read += part.num_rows
            return
        before = dict(counts.notes)
        for piece in blocks_of(part, 1 if decoding.plan.is_avro else len(decoding.plan.fields)):
            for outcomes in block_decoder(decoding.plan).decode(piece, counts):
                if not stream.has_news:
                    yield from self._packed(decoding.index, outcomes)
            if counts.truncates:
                stream.truncated += [TruncatedAt(decoding.index, *place) for place in counts.truncates]
                counts.truncates.clear()
        if self.plan.follows_fields and not decoding.plan.is_avro:
            self._look_at_notes(part, table, decoding, before, stream)

    def _of_nothing(
        self, block: Any, table: SourceTable, indexes: RowIndexes, stream: _Stream, shared: _Shared
    ) -> Iterator[tuple[int, int, pa.Buffer]]:
        """Records of a table that is not there, of which none has said yet what it would be."""
        dead: dict[int, tuple[str, str | None]] = {}
        stream.counts.read += len(indexes)
        for index, record in zip(indexes.tolist(), raw_records.each_of(block, indexes), strict=True):
            reading = read_record(self.plan.ledger.format, record, registry=self.plan.ledger.registry)
            changes = changes_of(reading)
            if isinstance(reading, Dead):
                dead[index] = (reading.reason, reading.column)
            elif isinstance(reading, Skipped | Truncate) or all(each.kind == RowKind.DELETE for each in changes):
                reason = reading.reason if isinstance(reading, Skipped) else f"{NOTHING}: {table}"
                stream.counts.skipped[reason] += 1
            else:
                described = self._described_one(record, raw_records.where(block, index))
                if described.is_empty:
                    dead[index] = (_SAYS_NOTHING, None)
                else:
                    stream.note(table, described)
                    return  # the batch is run once more
        if dead and not stream.has_news:
            yield from self._packed(NO_TABLE, shared.writer.block(block, 0).dead(dead))

    def _note_renames(self, record: RawRecord, place: tuple[str, int, int], stream: _Stream) -> None:
        """What a record of the schema change topic says of names, and is not known yet."""
        body = schema_change_of(record, self.plan.ledger.registry)
        for table, found in () if body is None else renames_in(body, place):
            route, decoding = route_of(self.plan.config, table), self.plan.tables.get(table)
            if not isinstance(route, Route) or self.plan.only not in (None, route.target):
                continue
            if isinstance(decoding, Held) and decoding.reason in (HELD, LEFT):
                continue  # `resume` finds it
            before = stream.renamed.get(table, [])
            if self.plan.renames.get(route.target, NO_RENAMES).is_news(found, before):
                stream.renamed[table] = [*before, found]

    # --- what is new --------------------------------------------------------------------------------------------------

    def _describe(self, block: Any, table: SourceTable, indexes: RowIndexes, stream: _Stream, renames: Renames) -> None:
        """A table that is not known yet. One whose records say nothing yet (deletions alone) is described as empty."""
        if stream.looked_at[table] >= SAMPLE:
            return
        sample = indexes[:: -(-len(indexes) // _SAMPLE_OF_BLOCK)]
        stream.looked_at[table] += len(sample)
        described = None
        for each, where in placed_records(block, sample):
            found = renames.described(self._described_one(each, where))
            if not found.is_empty:
                described = found if described is None else described.joined(found)
        if described is None:
            described = DescribedTable({}, (), False, raw_records.where(block, int(indexes[0])))
        stream.note(table, described)

    def _look_at_schemas(
        self, part: Any, table: SourceTable, decoding: TableDecoding, stream: _Stream, shared: _Shared
    ) -> None:
        """The schemas that records bring: each is looked at once per process and plan."""
        if self.plan.ledger.is_avro:
            self._look_at_ids(part, table, decoding, stream, shared)
            return
        # What is passed over changes `known` alone.
        known = shared.prefixes.setdefault((table, *decoding.identity), {})
        left = np.arange(part.num_rows)
        if self.plan.ledger.format == "debezium-json":
            left = self._look_at_prefixes(part, table, decoding, stream, known)
        for index, text in schema_texts(self.plan.ledger.format, part.column(raw_records.VALUE), left):
            self._look_at_one(part, index, table, decoding, stream, known, text)

    def _look_at_prefixes(
        self,
        part: Any,
        table: SourceTable,
        decoding: TableDecoding,
        stream: _Stream,
        known: dict[bytes, DescribedTable | None],
    ) -> RowIndexes:
        """The schemas that stand in front as Connect's converter writes them; gives the records of any other form."""
        values, left = part.column(raw_records.VALUE), np.arange(part.num_rows)
        while len(left):
            is_wrapped = pc.starts_with(values, pattern=WRAPPED).to_numpy(zero_copy_only=False)
            if not is_wrapped.any():
                break
            at = int(is_wrapped.argmax())
            first: bytes = values[at].as_py()
            prefix = next((each for each in known if first.startswith(each)), None) or schema_prefix(first)
            if prefix is None or len(known) >= SCHEMAS_MAX:
                break
            self._look_at_one(part, int(left[at]), table, decoding, stream, known, prefix)
            others = np.flatnonzero(~pc.starts_with(values, pattern=prefix).to_numpy(zero_copy_only=False))
            left, values = left[others], values.take(pa.array(others))
        return left

    def _look_at_one(
        self,
        part: Any,
        index: int,
        table: SourceTable,
        decoding: TableDecoding,
        stream: _Stream,
        known: dict[bytes, DescribedTable | None],
        schema: bytes,
    ) -> None:
        if schema not in known:
            ((record, where),) = placed_records(part, np.array([index]))
            known[schema] = _news(self._described_one(record, where), decoding)
        news = known[schema]
        if news is not None:
            stream.note(table, news)

    def _look_at_ids(
        self, part: Any, table: SourceTable, decoding: TableDecoding, stream: _Stream, shared: _Shared
    ) -> None:
        """The writer schemas of records in Avro, by the ids in front of them."""
        known = shared.prefixes.setdefault((table, *decoding.identity), {})
        heads = pc.binary_slice(part.column(raw_records.VALUE), 0, HEAD_BYTES).dictionary_encode()
        for code, head in enumerate(heads.dictionary.to_pylist()):
            if head not in known:
                first = pc.index(heads.indices, code).as_py()
                (record,) = raw_records.each_of(part, np.array([first]))
                known[head] = _news(self._described_one(record, raw_records.where(part, first)), decoding)
            news = known[head]
            if news is not None:
                stream.note(table, news)

    def _described(self, records: Iterable[tuple[Any, str]]) -> DescribedTable | None:
        return describe_records(self.plan.ledger.format, records, self.plan.ledger.registry)

    def _described_one(self, record: Any, where: str) -> DescribedTable:
        return describe_record(self.plan.ledger.format, record, where, self.plan.ledger.registry)

    def _look_at_notes(
        self, part: Any, table: SourceTable, decoding: TableDecoding, before: Mapping[str, int], stream: _Stream
    ) -> None:
        """Fields that nothing reads, though no schema of the block has said so: of records without one, whose types are
        guessed, or who have a field that their schema lacks."""
        count = SAMPLE if self.plan.guesses else TYPED_SAMPLE
        for name in new_names(stream.counts.notes, before, decoding.known):
            described = self._described(records_with(part, name, count))
            if described is None or not (described.is_typed or self.plan.guesses):
                continue
            news = _news(described, decoding)
            if news is not None:
                stream.note(table, news)


def _news(described: DescribedTable, decoding: TableDecoding) -> DescribedTable | None:
    """The columns that the table does not have, or has in a narrower type; of guessed types only new ones."""
    columns = {}
    for name, text in described.columns.items():
        known = decoding.known.get(name)
        if known is None or (described.is_typed and known and union_type(known, text) not in (known, None)):
            columns[name] = text
    return with_names(replace(described, columns=columns), decoding.names) if columns else None


@dataclass(slots=True)
class _Shared:
    """What one process keeps for a pipeline."""

    writer: OutcomeWriter
    sorter: RecordSorter
    prefixes: dict[Any, dict[bytes, DescribedTable | None]] = field(default_factory=dict)
    versions: dict[Any, dict[bytes, int]] = field(default_factory=dict)


@lru_cache(8)
def _shared(ledger: DecodePlan) -> _Shared:
    return _Shared(OutcomeWriter(ledger), RecordSorter(ledger.format, ledger.registry))
