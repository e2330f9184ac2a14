"""Which changes of a stream the chunks of a copy have already: those that the snapshot of the chunk of their key holds.

Only transactions that were committed before `until` can be in a snapshot, so the rest is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.postgres.change_records import NOWHERE, ChangeRecords
from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_chunks import CopyProgress, Places
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.copy_state import TableName
from freshet.pipeline.postgres.key_order import places_of_keys
from freshet.pipeline.postgres.sent_changes import StreamedChanges
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.wire import TEXT, TRUNCATE, UNCHANGED, distinct, texts_at, tuples_at


@dataclass(frozen=True)
class CopyRule:
    """A value that travels to the workers: the copies that the changes of a batch may be in. `place` is asked for the
    order of keys that nobody else knows."""

    place: ServerPlace
    tables: Mapping[TableName, tuple[CopiedTable, CopyProgress]]
    until: int

    def applied(self, sent: StreamedChanges, records: ChangeRecords) -> ChangeRecords:
        """The records that no chunk has."""
        lsns = np.array([each.commit_lsn for each in sent.transactions], np.int64)
        xids = np.array([each.xid for each in sent.transactions], np.int64)
        counts = np.ones(len(records), bool)
        may_be = lsns[records.transactions] < self.until
        for number in distinct(records.forms[may_be]):
            form = sent.forms[number]
            found = self.tables.get((form.relation.schema, form.relation.name))
            if found is None:
                continue
            rows = np.flatnonzero(may_be & (records.forms == number))
            counts[rows] = self._counts(sent, records.taken(rows), form, *found, xids)
        return records if counts.all() else records.taken(counts)

    def _counts(
        self,
        sent: StreamedChanges,
        records: ChangeRecords,
        form: TableForm,
        table: CopiedTable,
        progress: CopyProgress,
        xids: Places,
    ) -> Places:
        ids = xids[records.transactions]
        counts = np.ones(len(records), bool)
        truncates = np.flatnonzero(records.kinds == TRUNCATE)
        if len(truncates):
            held = np.array([chunk.snapshot.holds(ids[truncates]) for chunk in progress.chunks])
            if (held.any(axis=0) != held.all(axis=0)).any():
                raise _torn(form, "was truncated")
            counts[truncates] = ~held.any(axis=0)
        rows = np.flatnonzero(records.kinds != TRUNCATE)
        keys = self._keys(sent, records.taken(rows), form, table)
        places = self._places(form, table, progress, keys)
        counts[rows], _ = progress.applied(places, ids[rows])
        self._refuse_torn_rows(sent, records, counts, form, table, progress)
        return counts

    def _keys(
        self, sent: StreamedChanges, records: ChangeRecords, form: TableForm, table: CopiedTable
    ) -> list[pa.Array]:
        """The texts of the columns of the keys."""
        at = np.where(records.news == NOWHERE, records.olds, records.news)
        tuples = tuples_at(sent.messages.octets, at, len(form.relation.columns))
        names = [table.columns[place].name for place in table.key]
        if not all(name in form.indexes for name in names):
            raise _torn(form, "got another key")
        return [
            texts_at(sent.messages.data, tuples.begins[index], tuples.lengths[index], tuples.kinds[index] != TEXT).cast(
                pa.string()
            )
            for index in (form.indexes[name] for name in names)
        ]

    def _places(self, form: TableForm, table: CopiedTable, progress: CopyProgress, keys: Sequence[pa.Array]) -> Places:
        columns = [table.columns[place] for place in table.key]
        types = [form.types[form.indexes[column.name]] for column in columns]
        if not progress.bounds:
            return np.zeros(len(keys[0]), np.int64)
        if any(each.null_count for each in keys):
            raise _torn(form, "got another key")
        places = places_of_keys(progress.bounds, keys, columns, types)
        if places is not None:
            return places
        with self.place.session() as session:
            bounds = [tuple(key) for key in zip(*(each.to_pylist() for each in keys), strict=True)]
            return np.array(ChunkReader(session, table).places(progress.bounds, bounds), np.int64)

    def _refuse_torn_rows(
        self,
        sent: StreamedChanges,
        records: ChangeRecords,
        counts: Places,
        form: TableForm,
        table: CopiedTable,
        progress: CopyProgress,
    ) -> None:
        """Of a row whose key changed between two chunks neither may have brought what it has; what the change does not
        bring either (TOAST) is nowhere in the lake."""
        moved = np.flatnonzero(records.is_moved & counts)
        if not len(moved) or not progress.bounds:
            return
        own = records.taken(moved)
        news = tuples_at(sent.messages.octets, own.news, len(form.relation.columns))
        lacking = np.flatnonzero(np.logical_or.reduce([kinds == UNCHANGED for kinds in news.kinds]))
        if not len(lacking):
            return
        deletes = {int(number): bool(counts[row]) for row, number in enumerate(records.numbers.tolist())}
        if any(not deletes.get(int(number) - 1, False) for number in own.numbers[lacking].tolist()):
            raise _torn(form, "has a row whose key changed, with large values that the change does not bring (TOAST),")


def _torn(form: TableForm, what: str) -> PipelineFailedError:
    return PipelineFailedError(
        f"table {form.relation} {what} while it was copied, and its chunks are from before and after: nothing of it "
        "was written. Copy it again: freshet resync FILE",
        kind=ErrorKind.INVALID_REQUEST,
    )
