"""Which snapshot a request means, and what the errors say (MERGING.md §6.4)."""

from __future__ import annotations

import pytest

from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.scan.read_snapshot import find_snapshot


class Tags:
    def of(self, name: str) -> Snapshot:
        return {"old": _snapshot(1)}[name]


class Snapshots:
    """Snapshots 3 to 5, committed at 300, 400 and 500 ms; the tag `old` holds the expired 1."""

    def __init__(self) -> None:
        self.kept = {number: _snapshot(number) for number in (3, 4, 5)}
        self.tags = Tags()

    def snapshot(self, number: int) -> Snapshot:
        if number not in self.kept:
            raise NotFoundError(f"snapshot {number} does not exist: there are 3 to 5")
        return self.kept[number]

    def latest(self) -> Snapshot | None:
        return self.kept[5] if self.kept else None

    def earliest(self) -> Snapshot | None:
        return self.kept[3] if self.kept else None

    def at_or_before(self, time_ms: int) -> Snapshot | None:
        return max((s for s in self.kept.values() if s.time_ms <= time_ms), key=lambda s: s.id, default=None)


def _snapshot(number: int) -> Snapshot:
    return Snapshot(number, 0, "b", "d", "user", number, CommitKind.APPEND, number * 100, 0, 0)


def find(**request: object) -> int | None:
    found = find_snapshot(Snapshots(), **request)  # type: ignore[arg-type]
    return None if found is None else found.id


def test_what_is_found() -> None:
    assert find() == 5
    assert find(snapshot_id=3) == 3
    assert find(tag="old") == 1
    assert [find(timestamp_ms=at) for at in (300, 399, 400, 10_000)] == [3, 3, 4, 5]


def test_errors_say_what_there_is() -> None:
    with pytest.raises(NotFoundError, match="3 to 5"):
        find(snapshot_id=2)
    with pytest.raises(NotFoundError, match=r"at or before 1970-01-01T00:00:00\.299.*earliest one still there is 3"):
        find(timestamp_ms=299)
    with pytest.raises(InvalidRequestError, match="snapshot_id and timestamp_ms exclude each other"):
        find(snapshot_id=3, timestamp_ms=400)
    empty = Snapshots()
    empty.kept = {}
    assert find_snapshot(empty) is None  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="no snapshot yet"):
        find_snapshot(empty, timestamp_ms=5)  # type: ignore[arg-type]
