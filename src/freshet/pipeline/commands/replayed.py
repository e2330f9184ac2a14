"""Dead letters that were replayed leave their table: what is in it is what is outstanding.

    replay of snapshot S ─ commits, 1. dead letters that failed again, 2. rows ─ 3. removes the files live at S

A replay takes all letters of its pipeline that are live at S, so afterwards each of them is a row, or skipped, or a
dead letter again with its new reason. Files that hold letters of other pipelines too are written again with those.
Where the process dies between 2 and 3, the next replay does 3 first. Snapshots from before still show what was removed,
until they expire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.exceptions import ConflictError, NotFoundError
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage, Split


def remove_replayed(dead: Table, snapshot_id: int, pipelines: Sequence[str], *, user: str, query_id: str) -> None:
    """Removes the letters of these pipelines that were live at a snapshot; does nothing where that was done before.

    Raises `InvalidRequestError` where they cannot be distinguished from later ones any more.
    """
    committer = dead.engine.committer(user, query_id)
    if committer.has_committed(snapshot_id).is_committed:
        return
    taken = _files_at(dead, snapshot_id)
    live = {entry.file.file_name for entry in dead.files()}
    if not taken.keys() <= live:
        raise InvalidRequestError(
            f"table {dead.name} was compacted or rewritten since the last replay, so the dead letters that are new "
            "cannot be distinguished from those replayed already; --all takes all of them"
        )
    with closing(dead.engine.task_writer(base_snapshot_id=None)) as writer:
        gone: list[Any] = []
        scan = dead.scan()
        for split in scan.plan():
            for part in _files_of(split, taken.keys()):
                others, count = [], 0
                for batch in scan.read_split(part):
                    is_other = pc.invert(pc.is_in(batch.column("pipeline"), pa.array(pipelines)))  # type: ignore[attr-defined]
                    count += batch.num_rows
                    others.append(batch.filter(is_other))
                rest = sum(batch.num_rows for batch in others)
                if rest == count:
                    continue
                gone.append(taken[part.files[0].file_name])
                for batch in others:
                    if batch.num_rows:
                        writer.write(pa.Table.from_batches([batch]))
        messages = [*writer.prepare_commit(), *(_without(entry) for entry in gone)]
        try:
            committer.commit(snapshot_id, messages)
        except ConflictError as error:
            dead.engine.discard(messages)
            if committer.has_committed(snapshot_id).is_committed:
                return  # by the same replay, run by another process
            raise InvalidRequestError(
                f"table {dead.name} was compacted while its replayed letters were removed; the next replay needs --all"
            ) from error


def _files_of(split: Split, names: object) -> Iterator[Split]:
    """The files of a split that have these names, each as a split of its own."""
    for file in split.files:
        if file.file_name in names:  # type: ignore[operator]
            yield replace(split, files=(file,))


def _without(entry: Any) -> CommitMessage:
    return CommitMessage(entry.partition, entry.bucket, entry.total_buckets, deleted_files=(entry.file,))


def _files_at(dead: Table, snapshot_id: int) -> dict[str, Any]:
    """The manifest entries of a snapshot's files, by file name."""
    try:
        return {entry.file.file_name: entry for entry in dead.files(snapshot_id=snapshot_id)}
    except NotFoundError as error:
        raise InvalidRequestError(
            f"table {dead.name}: snapshot {snapshot_id}, up to which the last replay went, has expired, so the dead "
            "letters that are new cannot be distinguished from those replayed already; --all takes all of them"
        ) from error
