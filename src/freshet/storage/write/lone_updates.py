"""Updates of which one half is given: a commit with such a row is refused.

A partial-update table whose -D remove rows passes -U over: what the row becomes comes with the +U. A filtered stream
has the -U of a row that leaves it, and no +U: the row would stay in silence, and its changelog tell an update that
changes nothing. Whether it is to go is not known (the +U may be in another commit, and bring some columns only), so a
commit with such a row is refused.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.merged_table import key_text
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.options.choices import MergeEngine
from freshet.storage.write.records import AcceptedRows

_NUMBER = "_number"


class LoneUpdates:
    """The keys whose last row, of those that a writer has taken since its last commit, is a -U."""

    def __init__(self, store: TableStore) -> None:
        options = store.options
        self._is_watched = (
            options.merge_engine is MergeEngine.PARTIAL_UPDATE and options.partial_update_remove_record_on_delete
        )
        self._table, self._key_columns = store.location, store.schema.primary_keys
        self._open: pa.Table | None = None

    def note(self, accepted: AcceptedRows) -> None:
        """Rows were taken."""
        kinds = accepted.kinds
        if not self._is_watched or (self._open is None and (kinds is None or (kinds != RowKind.UPDATE_BEFORE).all())):
            return
        kinds = np.zeros(accepted.rows.num_rows, np.int8) if kinds is None else kinds
        keys = list(self._key_columns)
        rows = accepted.rows.select(keys).append_column(ROW_KIND_COLUMN, pa.array(kinds))
        rows = rows if self._open is None else pa.concat_tables([self._open, rows])
        numbered = rows.append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
        last = numbered.group_by(keys).aggregate([(_NUMBER, "max")]).column(f"{_NUMBER}_max")
        ends = rows.take(last)
        left = ends.filter(pc.equal(ends.column(ROW_KIND_COLUMN), int(RowKind.UPDATE_BEFORE)))
        self._open = left if left.num_rows else None

    def check(self) -> None:
        """Raises `InvalidRequestError` where there is one."""
        if self._open is not None:
            raise InvalidRequestError(
                f"{self._table} was given -U rows without a row after them, of {self._open.num_rows} keys such as "
                f"{key_text(self._open, 0, self._key_columns)}: partial-update passes a -U over, and the row would stay"
                ". Write the +U in the same commit; where the row is to go, -D; where it is to stay, leave -U out "
                "(ignore-update-before=true)",
                table=self._table,
            )

    def clear(self) -> None:
        """The rows are given up."""
        self._open = None
