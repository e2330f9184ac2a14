"""Parts of a batch of a database, each for one worker: changes of its stream, or a chunk of a copy that it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.record_block import MIXED_RECORDS
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.repeating_errors import error_document
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.postgres.change_block import ChangeBlock
from freshet.pipeline.postgres.change_records import records_of, refuse_other_identity
from freshet.pipeline.postgres.copied_block import CopiedBlock, CopiedRows
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.copy_rule import CopyRule
from freshet.pipeline.postgres.copy_state import Bound
from freshet.pipeline.postgres.sent_changes import StreamedChanges
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.shared_snapshot import ImportedSnapshot
from freshet.pipeline.postgres.spilled_messages import SpilledMessages, read_all
from freshet.pipeline.postgres.wire import Positions
from freshet.pipeline.query.task.batch_work import BatchWork, record_packer
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import packed_batches


class ChangesOfStream(Frozen):
    """A `Piece`. `versions` are the forms of each table by its oid (`records_of`), `first_number` that of its first
    record; with `begins_inside` its first transaction has begun in the piece before. `rule` says which changes copies
    have already. `spilled` are files with its messages, where the stream has none. It `keeps_together` where keys
    change: a value that the row of a new key lacks is with the deletion of the old one."""

    stream: StreamedChanges
    versions: Mapping[int, tuple[Positions, Positions]]
    first_number: int
    begins_inside: bool
    rule: CopyRule | None
    work: KeptValue[BatchWork]
    source_index: int
    spilled: tuple[SpilledMessages, ...] = ()
    keeps_together: bool = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """`Piece.run`."""
        packer = record_packer(place, self.work, self.source_index)
        try:
            blocks = list(self._blocks())
        except PipelineFailedError as error:
            if error.kind is ErrorKind.RETRYABLE:
                raise
            yield from packed_batches(packer.tally(Tally(error=error_document(error))))
            return
        yield from packed_batches(packer(blocks))

    def _blocks(self) -> Iterator[ChangeBlock]:
        stream = self.stream
        if self.spilled:
            stream = replace(stream, messages=read_all(self.spilled))
        messages, records = records_of(
            stream.messages, stream.forms, self.versions, self.first_number, begins_inside=self.begins_inside
        )
        stream = replace(stream, messages=messages)
        if self.rule is not None:
            stream, records = self.rule.applied(stream, records)
        refuse_other_identity(records, stream.forms)
        for start in range(0, len(records), MIXED_RECORDS):
            yield ChangeBlock(stream, records.taken(np.s_[start : start + MIXED_RECORDS]))


class ChunkOfTable(Frozen):
    """A `Piece`: the rows of a range of keys, or of pages, in a snapshot that another session has taken, by its name.
    `first_number` is that of its first row, `rate` the bytes of its texts in a second at most, `rows_max` how many
    rows are read at most."""

    place: ServerPlace
    snapshot: str
    table: CopiedTable
    after: Bound | None
    until: Bound | None
    rows: CopiedRows
    first_number: int
    work: KeptValue[BatchWork]
    source_index: int
    rate: float | None = None
    rows_max: int | None = None
    keeps_together: ClassVar[bool] = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """`Piece.run`."""
        packer = record_packer(place, self.work, self.source_index)
        yield from packed_batches(packer(self._blocks()))

    def _blocks(self) -> Iterator[CopiedBlock]:
        number, begun_s, size = self.first_number, time.monotonic(), 0
        with ImportedSnapshot(self.place, self.snapshot) as snapshot:
            for texts in snapshot.rows(self.table, self.after, self.until, self.rows_max):
                for start in range(0, texts.num_rows, MIXED_RECORDS):
                    part = texts.slice(start, MIXED_RECORDS)
                    yield CopiedBlock(self.rows, part, number)
                    number += part.num_rows
                size += texts.nbytes
                if self.rate is not None:
                    time.sleep(max(0.0, size / self.rate - (time.monotonic() - begun_s)))
