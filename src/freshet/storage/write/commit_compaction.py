"""How much compaction a commit does itself, where larger rounds run in the background of the stream.

    CompactionLimit     set by the committer: the time for what is not required, buckets the background works on
    CompactionTime      the time of one commit, shared by the threads of its writer
    CompactionSpeed     what a process has learnt about how long compactions of a table take

Required is what readers wait for: in tables whose commits compact level 0, `picker.pick_level_0_alone`, in others
nothing, unless a bucket has so many runs that writing must wait (`num-sorted-run.stop-trigger`). Whatever else the
picking rule asks for is done where it is likely to end in time, and is left to the background otherwise.

Which commits compact in full, and which buckets, `full-compaction.delta-commits` says.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.compact.joint_changes import buckets_below
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions

FIXED_MS: Final = 15
"""What a unit takes whatever its size: files are opened, written, synced."""

BYTES_PER_MS_FIRST: Final = 10 * 1024
"""Speed that is assumed before the first measurement, on the slow side."""

MEASURED_BYTES_MIN: Final = 256 * 1024
"""Smaller units say nothing about speed."""

NEWEST_WEIGHT: Final = 0.3


class CompactionLimit(Frozen):
    """`budget_ms` is the time of one commit in one process for rounds that are not required.

    Of buckets in `busy` a unit in the background is reading files above level 1; those files are left alone.
    """

    budget_ms: int = 0
    busy: frozenset[BucketId] = frozenset()


class CompactionSpeed:
    """Bytes of inputs in a millisecond; may be shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes_per_ms = float(BYTES_PER_MS_FIRST)

    def note(self, input_bytes: int, ms: float) -> None:
        """A unit of that many bytes has taken so long."""
        if input_bytes < MEASURED_BYTES_MIN:
            return
        measured = input_bytes / max(1.0, ms - FIXED_MS)
        with self._lock:
            self._bytes_per_ms += NEWEST_WEIGHT * (measured - self._bytes_per_ms)

    def ms_of(self, input_bytes: int) -> float:
        """How long a unit of that many bytes is likely to take."""
        with self._lock:
            return FIXED_MS + input_bytes / self._bytes_per_ms


@dataclass(slots=True)
class CompactionTime:
    """What is left of the time of one commit, and how many buckets had to be waited for; shared by threads."""

    limit: CompactionLimit
    waited_buckets: int = 0
    spent_ms: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, ms: float) -> bool:
        """Takes so much from the time; False, and nothing taken, when less is left."""
        with self._lock:
            if self.spent_ms + ms > self.limit.budget_ms:
                return False
            self.spent_ms += ms
            return True

    def wait_for_bucket(self) -> None:
        """A bucket has so many runs that this commit compacts it whatever the time."""
        with self._lock:
            self.waited_buckets += 1


def is_full_compaction_due(options: CoreOptions, identifier: int | None) -> bool:
    """True when `full-compaction.delta-commits` has the commit of this number, or one without a number, compact."""
    delta_commits = options.full_compaction_delta_commits
    if delta_commits is None or options.compacts_elsewhere:
        return False
    return identifier is None or identifier % delta_commits == 0


def behind_full_compaction(store: TableStore, snapshot: Snapshot | None) -> set[BucketId]:
    """Buckets of a keyed table that were written since their last full compaction: with files below the highest level.

    The files say it, so it is true for files of every writer, and after a crash.
    """
    if snapshot is None or not store.schema.has_primary_key:
        return set()
    return buckets_below(store, snapshot, store.options.num_levels - 1)
