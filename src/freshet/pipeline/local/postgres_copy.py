"""The copy of the tables of a database, chunk by chunk, before their stream: planned here, read by the workers.

    plan ── SharedSnapshot: taken, its text in the offset ─▶ chunks of the batch ─▶ workers import it ─▶ COPY

A snapshot ends with the process that took it. A batch that was planned, whose process died, is read in another one:

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
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.identity.checkpoint_offsets import OFFSETS
from freshet.pipeline.local.postgres_offset import PostgresOffset
from freshet.pipeline.local.postgres_piece import ChunkOfTable
from freshet.pipeline.postgres.catalog import SourceCatalog
from freshet.pipeline.postgres.change_records import BegunTransaction
from freshet.pipeline.postgres.copied_block import CopiedRows
from freshet.pipeline.postgres.copied_chunks import Chunk
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.copy_rule import CopyRule
from freshet.pipeline.postgres.copy_state import CopyState, TableName
from freshet.pipeline.postgres.lsn import lsn_of, lsn_text
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.shared_snapshot import SharedSnapshot
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.transactions import TransactionSnapshot
from freshet.pipeline.postgres.wire import Relation, RelationColumn
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.wire.kept_value import KeptValue

CHUNKS_MAX: Final = 8
"""In a batch, of one or more tables: more than one, so that workers read side by side."""
_CHUNK_BITS: Final = 32
"""Rows of a chunk are numbered from its own number on."""
_NO_OID: Final = 0

HeldBatch = Callable[[SourceTable], int | None]
"""The last batch that the target of a source table has; None where there is none."""


class TableCopy:
    """The copy of one source; used by the thread of its query alone."""

    def __init__(
        self, place: ServerPlace, catalog: SourceCatalog, folder: WritableCheckpoint, index: int, held: HeldBatch
    ) -> None:
        self._place, self._catalog, self._folder, self._held = place, catalog, folder, held
        self._again_name = f"postgres-{index}-again"
        self._shared: SharedSnapshot | None = None
        self._tables: dict[TableName, CopiedTable] = {}

    def plan(self, begun: PostgresOffset) -> PostgresOffset:
        """The offset behind the next chunks."""
        assert begun.copy is not None
        state = begun.copy
        shared = self._renewed()
        for name in state.left:
            table = self._table(shared, name)
            while not state.of(name).is_whole and _count(state.since(begun.copy)) < CHUNKS_MAX:
                after = state.of(name).after
                until = None if table is None else shared.key_behind(table, after, table.chunk_rows)
                state = state.with_chunk(name, Chunk(after, until, shared.snapshot))
        if state.is_whole:
            state = replace(state, until=shared.insert_lsn())
        return replace(begun, copy=state)

    def pieces(
        self, begun: PostgresOffset, end: str, topic: str, work: KeptValue[BatchWork], index: int
    ) -> Iterator[ChunkOfTable]:
        """The chunks of a batch."""
        state = PostgresOffset.of(end).copy
        assert begun.copy is not None
        assert state is not None
        chunks = state.since(begun.copy)
        shared = self._shared
        if shared is None or any(chunk.snapshot != shared.snapshot for own in chunks.values() for chunk in own):
            shared = self._read_again(begun.copy, chunks, end)
        for name, own in chunks.items():
            table = self._table(shared, name)
            if table is None:
                continue
            now_us = time.time_ns() // 1000
            rows = CopiedRows(self._form(table), f"{topic}.copy", BegunTransaction(begun.lsn, now_us, 0))
            first = len(begun.copy.of(name).chunks)
            for number, chunk in enumerate(own, first):
                numbered = number << _CHUNK_BITS
                yield ChunkOfTable(self._place, shared.name, table, chunk, rows, numbered, work, index)

    def corrected(self, text: str) -> PostgresOffset:
        """An offset with the snapshots that its chunks were really read in."""
        offset = PostgresOffset.of(text)
        again = None if offset.copy is None else self._again()
        if offset.copy is None or again is None or again["end"] != text:
            return offset
        snapshots = {
            (schema, name): TransactionSnapshot.parse(snapshot) for schema, name, snapshot, _ in again["snapshots"]
        }
        known = {(schema, name): count for schema, name, _, count in again["snapshots"]}
        before = replace(
            offset.copy,
            progress={
                table: replace(each, chunks=each.chunks[: known.get(table, 0)])
                for table, each in offset.copy.progress.items()
            },
        )
        corrected = offset.copy.read_in(snapshots, before)
        if corrected.until is not None:  # else changes that only the later snapshot holds would count twice
            corrected = replace(corrected, until=max(corrected.until, lsn_of(again["until"])))
        return replace(offset, copy=corrected)

    def rule(self, begun: PostgresOffset) -> CopyRule | None:
        """What decides which changes behind an offset are in chunks; None where none can be."""
        state = begun.copy
        if state is None or state.until is None or begun.lsn >= state.until:
            return None
        unknown = [name for name in state.progress if name not in self._tables]
        if unknown:
            with self._place.session() as session:
                found = {name: CopiedTable.described(session, *name, self._catalog.publication) for name in unknown}
            self._tables |= {name: table for name, table in found.items() if table is not None}
        known = {name: each for name, each in state.progress.items() if name in self._tables}
        return CopyRule(self._place, {name: (self._tables[name], each) for name, each in known.items()}, state.until)

    def done(self, end: PostgresOffset) -> None:
        """A batch is in the lake; the last snapshot is let go, as the server cannot clean up behind it."""
        if end.copy is None or end.copy.is_whole:
            self.close()

    def close(self) -> None:
        """Lets the snapshot go."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    def _renewed(self) -> SharedSnapshot:
        self.close()
        self._shared = SharedSnapshot(self._place)
        return self._shared

    def _table(self, shared: SharedSnapshot, name: TableName) -> CopiedTable | None:
        """None where it is gone."""
        if name not in self._tables:
            found = shared.described(*name, self._catalog.publication)
            if found is None:
                return None
            self._tables[name] = found
        return self._tables[name]

    def _form(self, table: CopiedTable) -> TableForm:
        keys = {table.columns[place].name for place in table.key}
        columns = tuple(
            RelationColumn(each.name, each.type_oid, each.modifier, each.name in keys) for each in table.columns
        )
        return self._catalog.form(Relation(_NO_OID, table.schema, table.name, "d", columns))

    def _read_again(self, begun: CopyState, chunks: dict[TableName, tuple[Chunk, ...]], end: str) -> SharedSnapshot:
        """Another snapshot for a batch whose own is gone; see the module."""
        shared = self._renewed()
        number = max(self._folder.numbers(OFFSETS), default=0)
        known = self._again()
        before = (
            {} if known is None or known["end"] != end else {(each[0], each[1]): each for each in known["snapshots"]}
        )
        database = self._catalog.database
        snapshots: list[Any] = []
        for name in chunks:
            held = self._held(SourceTable(database, *name))
            if held is not None and held >= number:
                snapshots += [before[name]] if name in before else []
                continue
            if not begun.of(name).may_be_read_in(shared.snapshot):
                raise PipelineFailedError(f"snapshot {shared.snapshot} is too old", kind=ErrorKind.RETRYABLE)
            snapshots.append([*name, str(shared.snapshot), len(begun.of(name).chunks)])
        document = {"end": end, "snapshots": snapshots, "until": lsn_text(shared.insert_lsn())}
        self._folder.replace(self._again_name, json.dumps(document))
        return shared

    def _again(self) -> dict[str, Any] | None:
        text = self._folder.read(self._again_name)
        found: dict[str, Any] | None = None if text is None else json.loads(text)
        return found


def copied_tables(shared_tables: Sequence[tuple[TableName, CopiedTable | None]]) -> tuple[TableName, ...]:
    """The tables that can be copied in chunks; raises `PipelineFailedError` naming those that have no key."""
    keyless = [f"{schema}.{name}" for (schema, name), table in shared_tables if table is not None and not table.key]
    if keyless:
        raise PipelineFailedError(
            f"{', '.join(keyless)}: without a primary key rows cannot be copied in chunks. Give it one (ALTER TABLE "
            f"{keyless[0]} ADD PRIMARY KEY (…)), take it out of postgres.tables, or write snapshot: never, which "
            "begins with the changes that come from now on",
            kind=ErrorKind.INVALID_REQUEST,
        )
    return tuple(name for name, table in shared_tables if table is not None)


def _count(chunks: dict[TableName, tuple[Chunk, ...]]) -> int:
    return sum(map(len, chunks.values()))
