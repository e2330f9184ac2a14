"""Which small files of an append table to join (pure), and joining them: nothing is merged, and dropped are only rows
that deletion vectors mark. A full compaction takes all files of which rows are marked, of whatever size.

    bucketed, minor    window over the files in sequence order; `min_file_count` of them are a unit, unless the first
                       outweighs the others together: then it leaves the window, and also when the window reaches twice
                       the target size
    bucketed, full     all files but the big ones at the front, if these are three at least and more small than big
    unaware            small files by size into bins of size + open cost: a bin is a unit at two files and twice the
                       target, the last one at `min_file_count` files (or at two, when everything is to be joined)

Rows keep their order only in bucketed tables. Small means below the target size times `compaction.small-file-ratio`.

Paimon's window takes the joined file of the last unit together with the next four files, however large it has become: a
bucket below the target size is rewritten with every fourth commit, 46 bytes for each byte ingested over 370 commits.
Here files of similar weight are joined, so that a byte is rewritten about log5(files) times, for up to four files of
each weight that stay.

Sequence numbers of the outputs begin at the smallest of the inputs. Source: MERGING.md §8.2; FORMAT.md §7.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta, FileSource

FULL_MIN_FILE_COUNT: Final = 3
"""Fewer files in a bucket are left alone by a full compaction."""


class AppendRules(Frozen):
    """The options that steer the choice."""

    target_bytes: int
    small_file_bytes: int
    open_file_cost_bytes: int
    min_file_count: int = 5


def pick_window(files: Iterable[DataFileMeta], rules: AppendRules) -> tuple[DataFileMeta, ...]:
    """The next unit of a bucketed table; empty if there is none. Files already big enough may end up in a window."""
    window: deque[DataFileMeta] = deque()
    size = 0
    for file in in_sequence(files):
        window.append(file)
        size += file.file_size_bytes
        is_unit = len(window) >= rules.min_file_count
        if is_unit and 2 * window[0].file_size_bytes <= size:
            return tuple(window)
        if is_unit or size >= rules.target_bytes * 2:
            size -= window.popleft().file_size_bytes
    return ()


def pick_full_bucket(
    files: Iterable[DataFileMeta],
    rules: AppendRules,
    *,
    force_rewrite: bool = False,
    marked: Collection[str] = frozenset(),
) -> tuple[DataFileMeta, ...]:
    """The unit of a full compaction of one bucket; empty if it is not worth it, as it always is for `marked` files."""
    ordered = in_sequence(files)
    if force_rewrite:
        return tuple(ordered)
    is_marked = any(file.file_name in marked for file in ordered)
    if len(ordered) < FULL_MIN_FILE_COUNT and not is_marked:
        return ()
    while ordered and ordered[0].file_size_bytes >= rules.small_file_bytes and ordered[0].file_name not in marked:
        ordered.pop(0)
    if is_marked:
        return tuple(ordered)
    small = sum(1 for file in ordered if file.file_size_bytes < rules.small_file_bytes)
    worth_it = small > len(ordered) - small and len(ordered) >= FULL_MIN_FILE_COUNT
    return tuple(ordered) if worth_it else ()


def pick_bins(
    files: Iterable[DataFileMeta], rules: AppendRules, *, full: bool, marked: Collection[str] = frozenset()
) -> list[tuple[DataFileMeta, ...]]:
    """The units of one partition of a table without buckets, in sequence order inside each; in full, with all that are
    `marked`, also a single one."""
    taken = marked if full else ()
    small = sorted(
        (file for file in files if file.file_size_bytes < rules.small_file_bytes or file.file_name in taken),
        key=lambda file: (file.file_size_bytes, file.file_name),
    )
    bins: list[tuple[DataFileMeta, ...]] = []
    current: list[DataFileMeta] = []
    size = 0
    for file in small:
        current.append(file)
        size += file.file_size_bytes + rules.open_file_cost_bytes
        if len(current) > 1 and size >= rules.target_bytes * 2:
            bins.append(tuple(in_sequence(current)))
            current, size = [], 0
    if len(current) >= (2 if full else rules.min_file_count) or any(file.file_name in taken for file in current):
        bins.append(tuple(in_sequence(current)))
    return bins


def in_sequence(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Files in the order their rows were written."""
    return sorted(files, key=lambda file: (file.min_sequence_number, file.creation_time_ms or 0, file.file_name))


BATCH_ROWS: Final = 16 * 1024


def join_files(
    store: TableStore,
    partition: bytes,
    bucket: int,
    files: Sequence[DataFileMeta],
    vectors: BucketVectors | None = None,
) -> list[DataFileMeta]:
    """Rewrites the files, in their order, and returns the new ones. On failure nothing is left behind.

    Rows that the deletion vectors of the bucket mark are left out.
    """
    store.env.reach(CrashPoint.COMPACT_BEFORE_OUTPUT)
    writer = AppendFileWriter(store, partition, bucket, FileSource.COMPACT, files[0].min_sequence_number)
    with undone_on_failure(writer.abort):
        for file in files:
            for batch in DataFileRead(
                store,
                partition,
                bucket,
                file,
                store.schema.column_names,
                batch_rows=BATCH_ROWS,
                deleted_rows=None if vectors is None else vectors.of(file.file_name),
            ).batches():
                writer.write(batch)
        outputs = writer.close()
    store.env.reach(CrashPoint.COMPACT_OUTPUT_WRITTEN)
    return outputs
