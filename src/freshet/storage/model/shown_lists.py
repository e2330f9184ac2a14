"""Lists of snapshots and tags that show as tables: in text one to a line, in a notebook as rows.

They are a list and a tuple as any other; slices and sums of them are plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from freshet.storage.model.display import time_text
from freshet.storage.model.shown import ROWS_MAX, rows_html, shown_or_why
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.tag import Tag

_SNAPSHOT_HEADER: Final = ("snapshot", "kind", "time", "commit user", "identifier", "records", "change", "schema")
_TAG_HEADER: Final = ("tag", "snapshot", "committed", "records", "kept until")


class Snapshots(list[Snapshot]):
    """Snapshots, oldest first; the newest are shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _lines("[", self, "]")

    def _repr_html_(self) -> str:
        return shown_or_why(self, lambda: _table(_SNAPSHOT_HEADER, self, _snapshot_row, "snapshots"))


class Tags(tuple[Tag, ...]):
    """Tags, by snapshot and name; the last are shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _lines("(", self, ",)" if len(self) == 1 else ")")

    def _repr_html_(self) -> str:
        return shown_or_why(self, lambda: _table(_TAG_HEADER, self, _tag_row, "tags"))


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
