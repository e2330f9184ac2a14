"""One tag: the name of a snapshot, with a copy of it that outlives it, and how long it is to be kept.

| fact | from |
|---|---|
| snapshot id, commit time, row count | the copy of the snapshot |
| `created`, `retained` | tags with a retention alone; the time is that of the clock of the machine that made the tag |

Source: FORMAT.md §12.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from freshet.storage.model.display import time_text
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, repr=False)
class Tag(Shown):
    """A tag: its `name`, a copy of the `snapshot`, and, of one that stays for a time only, when it was `created` and
    for how long it is `retained`."""

    name: str
    snapshot: Snapshot
    created: datetime | None = None
    """Local time of the machine that made the tag, without a zone; None for tags without a retention."""
    retained: timedelta | None = None
    """How long it stays after `created`; None: until it is deleted."""

    def __repr__(self) -> str:
        until = self.retained_until
        kept = "" if until is None else f", until {until.isoformat(' ', 'seconds')}"
        return f"Tag({self.name!r}, snapshot {self.snapshot_id}, {self.row_count} rows{kept})"

    def _shown(self) -> Facts:
        until = self.retained_until
        yield from (
            ("name", self.name),
            ("snapshot", self.snapshot_id),
            ("committed", time_text(self.snapshot.time_ms)),
        )
        yield from (("records", self.row_count), ("schema", str(self.snapshot.schema_id)))
        yield ("kept until", "it is deleted" if until is None else until.isoformat(" ", "seconds"))

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot that it holds, which may have expired."""
        return self.snapshot.id

    @property
    def commit_time(self) -> datetime:
        """When the snapshot was committed, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.snapshot.time_ms)

    @property
    def row_count(self) -> int:
        """Rows in the data files of the snapshot, before merging."""
        return self.snapshot.total_record_count

    @property
    def retained_until(self) -> datetime | None:
        """From then on whoever commits removes it; a local time as `created` is. None: it stays."""
        if self.created is None or self.retained is None:
            return None
        try:
            return self.created + self.retained
        except OverflowError:
            return datetime.max
