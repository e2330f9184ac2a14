"""What a caller asks of a stream, as one value; what the parts mean is said by `Table.stream`."""

from __future__ import annotations

from collections.abc import Sequence

from freshet._frozen import Frozen
from freshet.storage.changes.reader import ChangeSplitReader
from freshet.storage.changes.stream_start import StartRequest
from freshet.storage.filters.filter_text import FilterGiven, to_predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.moment import TimeGiven
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import check_columns


class StreamRequest(Frozen):
    """Checked against a table when its stream is opened."""

    columns: Sequence[str] | None = None
    filter: FilterGiven = None  # the word every reader library uses
    scan_mode: str | None = None
    from_snapshot: int | None = None
    from_timestamp: TimeGiven | None = None
    consumer_id: str | None = None
    with_snapshot_id: bool = False
    upserts: bool = False
    isolation: str | None = None
    """`none` (snapshots alone), `committed` or `speculative` (snapshots, then the log); None is `committed` for a table
    with a log and `none` for others."""

    @property
    def is_speculative(self) -> bool:
        """True where rows come that belong to no snapshot yet."""
        return (self.isolation or "").lower() == "speculative"

    @property
    def start(self) -> StartRequest:
        """Where it begins; raises `InvalidRequestError` for what does not go together."""
        return StartRequest.of(self.scan_mode, self.from_snapshot, self.from_timestamp)

    def reader(self, store: TableStore) -> ChangeSplitReader:
        """Reads the changes of a table in the columns asked for; raises where the table was dropped."""
        store.check_is_there()
        scan_filter = ScanFilter.bind(store.schema, to_predicate(self.filter))
        return ChangeSplitReader(store, check_columns(store, self.columns), scan_filter, self.with_snapshot_id)
