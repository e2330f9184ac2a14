"""The ledger of a pipeline of many tables: a small table that every batch is committed to, after all others.

| row | what it says |
|---|---|
| with an empty name | the pipeline: the last batch |
| of a table, `active` | the last batch that wrote it, its schema then, when it was created, its source tables |
| of a table, `apart` | from which batch and which offsets on its records are held back, and why |
| of a table, `resumed` | up to which batch `resume` has brought it; the next batch takes it up |

The identity in each table stays the proof that it has a batch. The ledger says what identity cannot: which tables a
batch wrote, so that one which was restored from a backup is known by the batches that it lacks, and which tables are
set apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Final

import orjson
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY, SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.identity.missing_batches import batches_text
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitTrace

ACTIVE, APART, RESUMED = "active", "apart", "resumed"
WHOLE: Final = ""
"""The name of the row of the pipeline."""

Offsets = Mapping[str, Mapping[str, int]]
"""Topic, partition, offset; as Spark writes them."""


class LedgerRow(Frozen):
    """What the ledger says of one table."""

    table_name: str
    state: str = ACTIVE
    batch: int | None = None
    digest: str | None = None
    schema_id: int | None = None
    created_ms: int | None = None
    since_batch: int | None = None
    since_offsets: str | None = None
    cause: str | None = None
    sources: str = "[]"

    @property
    def source_tables(self) -> tuple[SourceTable, ...]:
        """The source tables that go there."""
        return tuple(SourceTable(*each) for each in orjson.loads(self.sources))

    @property
    def since(self) -> Offsets:
        """Where its records are held back from."""
        offsets: Offsets = orjson.loads(self.since_offsets or "{}")
        return offsets

    def with_sources(self, tables: Iterable[SourceTable]) -> LedgerRow:
        """The same with these source tables."""
        return replace(self, sources=orjson.dumps(sorted([list(each) for each in set(tables)])).decode())


def read_ledger(ledger: Table) -> dict[str, LedgerRow]:
    """All rows by name."""
    rows = ledger.scan(list(LEDGER_COLUMNS)).to_arrow().to_pylist()
    return {row[LEDGER_KEY]: LedgerRow(**{**row, "sources": row["sources"] or "[]"}) for row in rows}


def lost_batches(row: LedgerRow, last: CommitTrace | None) -> tuple[int, int] | None:
    """The first and the last batch that may have been lost of a table whose last commit of the pipeline is older than
    the batch that its row has; None where it is not."""
    held = -1 if last is None else last.identifier
    return None if row.batch is None or held >= row.batch else (held + 1, row.batch)


def anew_text(config: SyncPipelineConfig, table: str) -> str:
    """What to do so that a table is read anew."""
    if any(source.postgres is not None for source in config.sources):
        return f"copy it again, as a slot sends no change twice: freshet resync FILE --table {table}"
    return f"read it anew: freshet resync FILE --table {table}"


def lost_batches_text(row: LedgerRow, last: CommitTrace | None, config: SyncPipelineConfig) -> str | None:
    """What to say of such a table."""
    lost = lost_batches(row, last)
    if lost is None:
        return None
    return (
        f"table {row.table_name} does not hold batch {row.batch} of pipeline {config.name!r}, which the ledger "
        f"{config.ledger_name} says it was written in: it was restored from a backup or rolled back. Nothing was "
        f"written. Restore it as it was, or {anew_text(config, row.table_name)}. If its rows "
        f"of {batches_text(*lost)} are to be left out, run the pipeline once with --accept-loss-of {lost[0]}..{lost[1]}"
    )


def ledger_rows(rows: Iterable[LedgerRow]) -> pa.Table:
    """Rows as the table takes them; a ledger of an earlier version may have a column more, which is NULL then."""
    kinds = {"BIGINT": pa.int64(), "STRING": pa.string()}
    schema = pa.schema([(name, kinds[text]) for name, text in LEDGER_COLUMNS.items()])
    return pa.Table.from_pylist([asdict(row) for row in rows], schema)


def write_rows(ledger: Table, pipeline: str, rows: Iterable[LedgerRow]) -> None:
    """Commits facts outside of a batch: a table that is set apart, or taken up again."""
    with ledger.writer(f"{pipeline} (tables set apart)") as writer:
        writer.write(ledger_rows(rows))
        writer.commit()
