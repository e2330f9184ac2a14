"""What one run knows of the ledger: its rows as they were read last, and what was written since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.config.sync import RENAMES_COLUMN
from freshet.pipeline.sync.ledger import LedgerRow, read_ledger, write_rows
from freshet.storage import exceptions as storage
from freshet.storage.table import AddColumn
from freshet.storage.table_engine import CommitCheck


class LedgerState:
    """The rows by the names of their tables."""

    def __init__(self, commit: TableCommit, pipeline: str) -> None:
        self.commit = commit
        self.rows: dict[str, LedgerRow] = {}
        self._pipeline = pipeline
        self._snapshot: int | None = None
        self._is_read = False

    def is_read(self, check: CommitCheck) -> bool:
        """Whether the rows are those of the snapshot that a batch finds; if not, they are to be read."""
        latest = None if check.latest is None else check.latest.id
        is_read = self._is_read and latest == self._snapshot
        self._snapshot, self._is_read = latest, True
        return is_read

    def read(self) -> None:
        """Reads all rows."""
        self.rows = read_ledger(self.commit.table)

    def state_of(self, name: str) -> str | None:
        """The state of a table; None where the ledger does not know it."""
        row = self.rows.get(name)
        return None if row is None else row.state

    def write(self, row: LedgerRow) -> None:
        """Commits a fact, outside of a batch."""
        self._follow_schema()
        if row.renames is None and row.table_name in self.rows:
            row = replace(row, renames=self.rows[row.table_name].renames)
        write_rows(self.commit.table, self._pipeline, [row])
        self.rows[row.table_name] = row

    def write_renames(self, name: str, change: Callable[[str | None], str]) -> None:
        """Commits what is known of the renamed columns of a table: what `change` makes of what the ledger says now,
        which another driver may have written since this one has read it."""
        while RENAMES_COLUMN not in self.commit.table.schema.by_name:
            try:
                self.commit.table.alter(AddColumn(RENAMES_COLUMN, "STRING"))
            except storage.InvalidRequestError:
                if self.commit.table.engine.latest_schema_id() == self.commit.table.schema.id:
                    raise
            self.commit.follow_schema(is_planned=False)
        written = read_ledger(self.commit.table).get(name, LedgerRow(name))
        text = change(written.renames)
        write_rows(self.commit.table, self._pipeline, [replace(written, renames=text)])
        self.rows[name] = replace(self.rows.get(name, written), renames=text)

    def renames_text(self, name: str) -> str | None:
        """What the ledger has of the renamed columns of a table."""
        row = self.rows.get(name)
        return None if row is None else row.renames

    def noted(self, rows: Sequence[LedgerRow]) -> None:
        """Rows that a batch writes."""
        self.rows.update({row.table_name: row for row in rows})

    def committed(self, snapshot_ids: Sequence[int]) -> None:
        """The ledger has a batch, in these snapshots. Where others have come before them, it is read again: `resume`
        may have brought a table up meanwhile."""
        before = self._snapshot or 0
        is_next = bool(snapshot_ids) and snapshot_ids[0] == before + 1
        self._snapshot = snapshot_ids[-1] if snapshot_ids else None
        self._is_read = is_next

    def _follow_schema(self) -> None:
        """Another driver may have added the column of renames: what this one has read before says nothing of them."""
        before = self.commit.table.schema.id
        self.commit.follow_schema(is_planned=False)
        if self.commit.table.schema.id != before:
            texts: Mapping[str, LedgerRow] = read_ledger(self.commit.table)
            for name, row in self.rows.items():
                if name in texts:
                    self.rows[name] = replace(row, renames=texts[name].renames)
