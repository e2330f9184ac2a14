"""Kafka sources whose records the Python workers read themselves: no record goes through the JVM.

    Spark plans a batch (offsets, limits, checkpoint) ─ ranges of its plan ─ a task for each ─ RangeReader ─ decoder

Spark's own frame of the batch is not run then; what follows the decoder is the same. Each task says how far it came
with the rows that it gives (`Tally.reached`), and the driver compares that with the ranges (`batch.direct_reads`).

Measured, 646-byte Debezium records: see docs/benchmarks.md, W9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet.logstore.kafka.java_options import client_settings
from freshet.logstore.kafka.polled_records import PolledRecords
from freshet.logstore.kafka.range_reader import BATCH_BYTES, OffsetRange, RangeProgress, RangeReader
from freshet.pipeline.batch.direct_reads import Ranges, range_name
from freshet.pipeline.batch.packed_rows import PACKED_SPARK_SCHEMA, Packing, PackRule
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.rules import why_spark_reads
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.planning import plan_decoding, spark_expressions
from freshet.pipeline.decode.raw_records import OLD_KEY_HEADER
from freshet.pipeline.decode.record_block import MIXED_RECORDS, KafkaBlock
from freshet.pipeline.errors.repeating_errors import error_document
from freshet.pipeline.sources.outcome_frame import outcome_struct, selected_rows
from freshet.pipeline.sources.select.projection import read_references
from freshet.pipeline.spark.arrow_map import KeptColumns
from freshet.storage.exceptions import NotFoundError

RECORDS_MIN: Final = 20_000
"""Batches with fewer records are left to Spark, whose plan is made once: another one takes 0.1 s."""

_FETCH_BYTES: Final = "fetch.message.max.bytes"
_SEVERAL_FETCH: Final = {_FETCH_BYTES: str(512 << 10)}
_SEVERAL_MIN: Final = 8
_LOOK_FETCH: Final = {_FETCH_BYTES: str(128 << 10), "queued.min.messages": "1"}

PASSED_OVER: Final = "offsets that were not in Kafka any more (failOnDataLoss is false)"
_TIMEOUT_MS: Final = 120_000
"""Spark's own, `kafkaConsumer.pollTimeoutMs`, where nothing else is said (`spark.network.timeout`)."""
_ISOLATION: Final = "isolation.level"


@dataclass(frozen=True, slots=True)
class DirectClient:
    """How the workers reach the brokers of one source."""

    settings: tuple[tuple[str, str], ...] = field(repr=False)
    timeout_s: float
    takes_losses: bool
    is_kept: bool = True
    """Whether a process keeps its consumer for the next batch."""

    def for_several(self, ranges: int) -> DirectClient:
        """For so many ranges that are read at the same time. What is fetched behind their ends is dropped: measured,
        125,000 records of fifty ranges take 0.65 s of processor time, and 0.85 s with the fetches of a single one."""
        if ranges < _SEVERAL_MIN:
            return self
        return replace(self, settings=tuple(sorted({**_SEVERAL_FETCH, **dict(self.settings)}.items())))

    def under(self, isolation: str) -> DirectClient:
        """For records of transactions under another isolation."""
        return replace(self, settings=tuple(sorted({**dict(self.settings), _ISOLATION: isolation}.items())))

    def for_a_look(self) -> DirectClient:
        """For a few records of each range, once: nothing is fetched ahead."""
        settings = tuple(sorted({**dict(self.settings), **_LOOK_FETCH}.items()))
        return replace(self, settings=settings, is_kept=False)


@dataclass(frozen=True, slots=True)
class DirectSources:
    """The sources of a pipeline as the workers read them."""

    config: PipelineConfig
    clients: tuple[DirectClient, ...]

    def takes(self, ranges: Ranges) -> bool:
        """Whether the workers read a batch of these ranges; one in which nothing is to be read is Spark's."""
        if not any(ranges.values()):
            return False
        if all(source.read == "python" for source in self.config.sources):
            return True
        return sum(max(0, each.end - each.start) for of in ranges.values() for each in of) >= RECORDS_MIN

    def under(self, isolations: Mapping[int, str]) -> DirectSources:
        """As `DirectReads` says."""
        clients = (client.under(isolations[index]) for index, client in enumerate(self.clients))
        return replace(self, clients=tuple(clients))

    def packed_schema(self) -> pa.Schema | None:
        """As `DirectReads` says."""
        if any(source.select for source in self.config.sources):
            return None
        return outcome_schema(plan_decoding(self.config, 0))

    def first_look(self, ranges: Ranges) -> None:
        """As `DirectReads` says: the table is there."""

    def frame(self, spark: SparkSession, ranges: Ranges, rule: PackRule | None) -> DataFrame:
        """The outcomes of the records of these ranges: those of `outcome_frame`, but for how they are read."""
        frames = [self._of_source(spark, index, of, rule) for index, of in sorted(ranges.items()) if of]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _of_source(
        self, spark: SparkSession, index: int, ranges: Sequence[OffsetRange], rule: PackRule | None
    ) -> DataFrame:
        references = read_references(spark, spark_expressions(self.config.sources[index]))
        plan = plan_decoding(self.config, index, references)
        numbers = spark.range(0, len(ranges), 1, len(ranges))
        reader, columns = RangeDecoder(self.clients[index], tuple(ranges), plan), KeptColumns([F.col("id")])
        if rule is not None:
            return columns.map_in_arrow(numbers, Packing(reader, rule), PACKED_SPARK_SCHEMA)
        rows = columns.map_in_arrow(numbers, reader, outcome_struct(plan))
        return selected_rows(rows, plan, self.config)


@dataclass(frozen=True, slots=True)
class RangeDecoder:
    """Takes numbers of ranges, gives outcomes of their records; a value that travels to the workers."""

    client: DirectClient
    ranges: tuple[OffsetRange, ...]
    plan: DecodePlan

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `ArrowFunction`."""
        decoder = RecordDecoder(self.plan)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                wanted = self.ranges[number]
                progress = RangeProgress(wanted.start)
                try:
                    yield from decoder(read_range(self.client, wanted, progress))
                except NotFoundError as error:  # another attempt would not find it either
                    yield decoder.tally(Tally(error=error_document(error)))
                    return
                notes = notes_of(progress)
                reached = {range_name(self.plan.source_index, number): progress.reached}
                yield decoder.tally(Tally(notes=notes, reached=reached))


def taken_directly(config: PipelineConfig) -> DirectSources | None:
    """The sources as the workers read them; None where Spark has to read one of them."""
    if any(map(_is_read_by_spark, config.sources)):
        return None
    return DirectSources(config, tuple(_client(source) for source in config.sources))


def _is_read_by_spark(source: SourceConfig) -> bool:
    if source.kafka is None or source.read == "spark":
        return True
    return why_spark_reads(source.select, revealed(source.kafka)) is not None


def _client(source: SourceConfig) -> DirectClient:
    options = revealed(source.kafka or {})
    lowered = {key.lower(): value for key, value in options.items()}
    settings = {**client_settings(options).values, _ISOLATION: source.isolation}
    timeout_ms = float(lowered.get("kafkaconsumer.polltimeoutms", _TIMEOUT_MS))
    takes_losses = lowered.get("failondataloss", "true").lower() == "false"
    return DirectClient(tuple(sorted(settings.items())), timeout_ms / 1000, takes_losses)


def read_range(client: DirectClient, wanted: OffsetRange, progress: RangeProgress) -> Iterator[KafkaBlock]:
    """The records of a range."""
    for records in _reader(client).read(wanted, progress):
        yield _block(wanted, records)


def read_ranges(client: DirectClient, wanted: Sequence[tuple[OffsetRange, RangeProgress]]) -> Iterator[KafkaBlock]:
    """The records of some ranges, which are read at the same time, in blocks that are not small."""
    kept: list[KafkaBlock] = []
    count = size = 0
    with _reading(client) as reader:
        for index, records in reader.read_several(wanted):
            kept.append(_block(wanted[index][0], records))
            count += len(records)
            size += int(records.lengths.sum()) + sum(map(len, filter(None, records.keys)))
            if count >= MIXED_RECORDS or size >= BATCH_BYTES:
                yield KafkaBlock.joined(kept)
                kept, count, size = [], 0, 0
    if kept:
        yield KafkaBlock.joined(kept)


def notes_of(progress: RangeProgress) -> dict[str, int]:
    """What of a range was passed over."""
    return {PASSED_OVER: progress.passed_over} if progress.passed_over else {}


@contextmanager
def _reading(client: DirectClient) -> Iterator[RangeReader]:
    if client.is_kept:
        yield _reader(client)
        return
    reader = _new_reader(client)
    try:
        yield reader
    finally:
        reader.close()


@lru_cache(8)
def _reader(client: DirectClient) -> RangeReader:
    """The one of this process: workers live for many batches."""
    return _new_reader(client)


def _new_reader(client: DirectClient) -> RangeReader:
    return RangeReader(dict(client.settings), timeout_s=client.timeout_s, takes_losses=client.takes_losses)


def _block(wanted: OffsetRange, records: PolledRecords) -> KafkaBlock:
    return KafkaBlock(
        [(wanted.topic, wanted.partition)],
        None,
        records.keys,
        records.values,
        records.lengths,
        records.offsets,
        records.timestamps,
        partial(records.headers, OLD_KEY_HEADER),
    )
