"""The copy of the tables of a database, chunk by chunk, beside their stream: planned here, read by the workers.

    plan ── SharedSnapshot: taken, its text in the offset ─▶ chunks of the batch ─▶ workers import it ─▶ COPY
                 └─ the stream of the batch ends before the first transaction that the snapshot does not hold

A table without a key is read in one snapshot, which is that of one batch, by ranges of its pages. A snapshot ends with
the process that took it. A batch that was planned, whose process died, is read in another one:

| the target of a table | the rows that it has, or gets, are of |
|---|---|
| has the batch | the snapshot that was planned |
| has it not | the other one, which is written down first (`postgres-<i>-again`) and counts from then on |
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.identity.checkpoint_offsets import OFFSETS
from freshet.pipeline.local.postgres_offset import PostgresOffset
from freshet.pipeline.local.postgres_piece import ChunkOfTable
from freshet.pipeline.local.postgres_tables import CopiedTables
from freshet.pipeline.postgres.change_records import BegunTransaction
from freshet.pipeline.postgres.copied_block import CopiedRows
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.copy_rule import CopyRule, other_key
from freshet.pipeline.postgres.copy_state import Chunk, CopyProgress, CopyState, TableName
from freshet.pipeline.postgres.lsn import lsn_of, lsn_text
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.shared_snapshot import SharedSnapshot
from freshet.pipeline.postgres.table_form import SourceCatalog
from freshet.pipeline.postgres.transactions import TransactionSnapshot
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.wire.kept_value import KeptValue

CHUNKS_MAX: Final = 8
"""In a batch, of one or more tables: more than one, so that workers read side by side."""
_CHUNK_BITS: Final = 32
"""Rows of a chunk are numbered from its own number on."""

HeldBatch = Callable[[SourceTable], int | None]
"""The last batch that the target of a source table has; None where there is none."""


class TableCopy:
    """The copy of one source; used by the thread of its query alone."""

    def __init__(
        self,
        place: ServerPlace,
        catalog: SourceCatalog,
        copied: CopiedTables,
        folder: WritableCheckpoint,
        index: int,
        held: HeldBatch,
    ) -> None:
        self._place, self._catalog, self._copied = place, catalog, copied
        self._folder, self._held = folder, held
        self._again_name = f"postgres-{index}-again"
        self._shared: SharedSnapshot | None = None
        self._tables: dict[TableName, CopiedTable] = {}

    def plan(self, begun: CopyState) -> tuple[CopyState, TransactionSnapshot]:
        """The copy with the next chunks, and the snapshot of these."""
        shared, state, count = self._renewed(begun.left[:CHUNKS_MAX]), begun, 0
        for name in begun.left[:CHUNKS_MAX]:
            table = self._of_key(self._table(shared, name), state.of(name))
            if table is None:
                self._copied.refuse_renamed(name)
            parts = 1 if table is None or table.key else len(table.page_ranges)
            if count and count + parts > CHUNKS_MAX:
                break
            while not state.of(name).is_whole and count < CHUNKS_MAX:
                after = state.of(name).after
                until = shared.key_behind(table, after, table.chunk_rows) if table is not None and table.key else None
                key = "" if table is None else table.key_text
                state = state.with_chunk(name, Chunk(after, until, shared.snapshot, shared.lsn), key)
                count += parts
        return state, shared.snapshot

    def pieces(
        self,
        begun: PostgresOffset,
        ends: PostgresOffset,
        end: str,
        topic: str,
        work: KeptValue[BatchWork],
        index: int,
        rate: float | None = None,
    ) -> Iterator[ChunkOfTable]:
        """The chunks of a batch, which ends at `end`; of each so many bytes are read in a second at most."""
        chunks = {} if ends.copy is None else ends.copy.since(begun.copy)
        if not chunks:
            return
        shared = self._shared
        if shared is None or any(chunk.snapshot != shared.snapshot for own in chunks.values() for chunk in own):
            shared = self._read_again(begun.copy, chunks, end)
        for name, own in chunks.items():
            table = self._of_key(self._table(shared, name), CopyProgress() if ends.copy is None else ends.copy.of(name))
            if table is None:
                continue
            now_us = time.time_ns() // 1000
            rows = CopiedRows(self._catalog.form_of(table), f"{topic}.copy", BegunTransaction(begun.lsn, now_us, 0))
            ranges = [(chunk.after, chunk.until) for chunk in own] if table.key else table.page_ranges
            for number, (after, until) in enumerate(ranges, 0 if begun.copy is None else begun.copy.of(name).count):
                numbered = number << _CHUNK_BITS
                yield ChunkOfTable(self._place, shared.name, table, after, until, rows, numbered, work, index, rate)

    def looks(
        self, begun: PostgresOffset, ends: PostgresOffset, end: str, topic: str, work: KeptValue[BatchWork], index: int
    ) -> list[ChunkOfTable]:
        """One row of each table whose copy begins in a batch. Without, its first batch is read twice, as the first time
        there is no table: a million rows took 11.2 s of processor time with the server's, and 8.1 with a look."""
        pieces = self.pieces(begun, ends, end, topic, work, index)
        return [replace(each, rows_max=1) for each in pieces if each.after is None]

    def corrected(self, text: str) -> PostgresOffset:
        """An offset with the snapshots that its chunks were really read in."""
        offset = PostgresOffset.of(text)
        copy = offset.copy
        again = None if copy is None else self._again()
        if copy is None:
            return offset
        for schema, name, snapshot, count, lsn in again["snapshots"] if again and again["end"] == text else ():
            read = Chunk(None, None, TransactionSnapshot.parse(snapshot), lsn_of(lsn))
            copy = copy.read_in((schema, name), count, read)
        return replace(offset, copy=copy.passed(offset.lsn))

    def rule(self, begun: PostgresOffset, ends: PostgresOffset) -> CopyRule | None:
        """What decides which changes of a batch are in chunks; None where none can be."""
        state = begun.copy if ends.copy is None else ends.copy.at(begun.copy)
        if state is None or (state.until is not None and begun.lsn >= state.until):
            return None
        unknown = [name for name, each in state.progress.items() if each.chunks and name not in self._tables]
        if unknown:
            with self._place.session() as session:
                now = {name: CopiedTable.described(session, *name, self._catalog.publication) for name in unknown}
            self._tables |= {name: table for name, table in now.items() if table is not None}
        found = {name: (self._tables.get(name), state.of(name)) for name in state.tables}
        tables = {name: (self._of_key(*each), each[1]) for name, each in found.items()}
        return CopyRule(self._place, tables, state.until)

    def done(self) -> None:
        """A batch is in the lake; its snapshot is let go, as the server cannot clean up behind it."""
        self.close()

    def close(self) -> None:
        """Lets the snapshot go."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    def _renewed(self, names: Sequence[TableName]) -> SharedSnapshot:
        self.close()
        for name in names:  # it may have been altered
            self._tables.pop(name, None)
        self._shared = SharedSnapshot(self._place, names)
        return self._shared

    def _table(self, shared: SharedSnapshot, name: TableName) -> CopiedTable | None:
        """None where it is gone."""
        if name not in self._tables:
            found = shared.described(*name, self._catalog.publication)
            if found is None:
                return None
            self._tables[name] = found
        return self._tables[name]

    @staticmethod
    def _of_key(table: CopiedTable | None, progress: CopyProgress) -> CopiedTable | None:
        """The table. Raises where its chunks are ranges of another key than it has."""
        if table is not None and progress.chunks and progress.key not in ("", table.key_text):
            raise other_key(f"{table.schema}.{table.name}")
        return table

    def _read_again(
        self, begun: CopyState | None, chunks: dict[TableName, tuple[Chunk, ...]], end: str
    ) -> SharedSnapshot:
        """Another snapshot for a batch whose own is gone; see the module."""
        shared = self._renewed(tuple(chunks))
        number = max(self._folder.numbers(OFFSETS), default=0)
        known = self._again()
        before = {(each[0], each[1]): each for each in known["snapshots"]} if known and known["end"] == end else {}
        database = self._catalog.database
        snapshots: list[Any] = []
        for name in chunks:
            held = self._held(SourceTable(database, *name))
            if held is not None and held >= number:
                snapshots += [before[name]] if name in before else []
            else:
                count = 0 if begun is None else begun.of(name).count
                snapshots.append([*name, str(shared.snapshot), count, lsn_text(shared.lsn)])
        self._folder.replace(self._again_name, json.dumps({"end": end, "snapshots": snapshots}))
        return shared

    def _again(self) -> dict[str, Any] | None:
        text = self._folder.read(self._again_name)
        found: dict[str, Any] | None = None if text is None else json.loads(text)
        return found
