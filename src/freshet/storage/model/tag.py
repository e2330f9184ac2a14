"""One tag: the name of a snapshot, with a copy of it that outlives it, and how long it is to be kept; lists of tags and
of snapshots that show as tables: in text one to a line, in a notebook as rows.

| fact | from |
|---|---|
| snapshot id, commit time, row count | the copy of the snapshot |
| `created`, `retained` | tags with a retention alone; the time is that of the clock of the machine that made the tag |

Source: FORMAT.md §12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from freshet.storage.model.display import time_text
from freshet.storage.model.shown import ROWS_MAX, Facts, HtmlShown, Shown, rows_html
from freshet.storage.model.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SNAPSHOT_HEADER: Final = ("snapshot", "kind", "time", "commit user", "identifier", "records", "change", "schema")
_TAG_HEADER: Final = ("tag", "snapshot", "committed", "records", "kept until")


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


class Snapshots(HtmlShown, list[Snapshot]):
    """Snapshots, oldest first; the newest are shown. They are a list as any other; slices and sums of it are plain
    ones."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _lines("[", self, "]")

    def _html(self) -> str:
        return _table(_SNAPSHOT_HEADER, self, _snapshot_row, "snapshots")


class Tags(HtmlShown, tuple[Tag, ...]):
    """Tags, by snapshot and name; the last are shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _lines("(", self, ",)" if len(self) == 1 else ")")

    def _html(self) -> str:
        return _table(_TAG_HEADER, self, _tag_row, "tags")


def _lines(opening: str, items: Sequence[object], closing: str) -> str:
    shown = [repr(item) for item in items[-ROWS_MAX:]]
    if len(items) > ROWS_MAX:
        shown.insert(0, f"… {len(items) - ROWS_MAX:,} before")
    joined = ",\n ".join(shown)
    return f"{opening}{joined}{closing}"


def _table(header: Sequence[str], items: Sequence[Any], row: Any, noun: str) -> str:
    if not items:
        return f"<p><em>no {noun}</em></p>"
    shown = items[-ROWS_MAX:]
    left_out = None if len(items) <= ROWS_MAX else f"the last {ROWS_MAX} of {len(items):,} {noun}"
    return rows_html(header, [row(item) for item in shown], left_out=left_out)


def _snapshot_row(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        snapshot.id,
        str(snapshot.commit_kind),
        time_text(snapshot.time_ms),
        snapshot.commit_user,
        snapshot.number_text,
        snapshot.total_record_count,
        f"{snapshot.delta_record_count:+,}",
        snapshot.schema_id,
    )


def _tag_row(tag: Tag) -> tuple[object, ...]:
    until = tag.retained_until
    kept = "until it is deleted" if until is None else until.isoformat(" ", "seconds")
    return (tag.name, tag.snapshot_id, time_text(tag.snapshot.time_ms), tag.row_count, kept)
