"""Dead letters that were replayed leave their table: what is in it is what is outstanding.

A replay takes all letters of its pipeline that are live at a snapshot, so afterwards each of them is a row, or skipped,
or a dead letter again with its new reason. Files that hold letters of other pipelines too are written again with those.
Earlier snapshots still show what was removed, until they expire.

Letters that a replay has added and that are to be taken back (`replay_unit`) are removed in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.batch.begun_replay import QUERY_ID, replay_user
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.exceptions import ConflictError, NotFoundError
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage, Committer, Split


def letter_names(pipeline: str) -> tuple[str, str]:
    """The names under which the letters of a pipeline are stored; the second was written by earlier versions."""
    return pipeline, replay_user(pipeline)


def is_removed(dead: Table, snapshot_id: int, pipeline: str) -> bool:
    """Whether the replay of this snapshot is over: its letters were removed, or those that it added."""
    return _committer(dead, pipeline).has_committed(snapshot_id).is_committed


def remove_replayed(dead: Table, snapshot_id: int, pipeline: str) -> None:
    """Removes the letters of a pipeline that were live at a snapshot; does nothing where the replay of it is over.

    Raises `InvalidRequestError` where they cannot be distinguished from later ones any more.
    """
    if is_removed(dead, snapshot_id, pipeline):
        return
    taken = _files_at(dead, snapshot_id)
    gone = taken.keys() - _files_at(dead, None).keys()
    if gone and _has_letters(dead, snapshot_id, gone, pipeline):
        if is_removed(dead, snapshot_id, pipeline):
            return  # meanwhile, by another process
        raise InvalidRequestError(
            f"table {dead.name} was compacted or rewritten since the last replay, so the dead letters that are new "
            "cannot be distinguished from those replayed already; --all takes all of them"
        )
    _remove(dead, {name: entry for name, entry in taken.items() if name not in gone}, snapshot_id, pipeline)


def remove_added(dead: Table, names: Collection[str] | None, snapshot_id: int, pipeline: str) -> None:
    """Removes the files that a replay of this snapshot has added, in place of the letters that it read; does nothing
    where that replay is over. Without names they are those of its commit, as earlier versions made it.

    Raises `InvalidRequestError` where they are not known any more.
    """
    if is_removed(dead, snapshot_id, pipeline):
        return
    added = _files_of_commit(dead, replay_user(pipeline), snapshot_id) if names is None else names
    live = _files_at(dead, None)
    if not set(added) <= live.keys():
        if is_removed(dead, snapshot_id, pipeline):
            return
        raise InvalidRequestError(
            f"table {dead.name} was compacted or rewritten since a replay was interrupted, so the letters that it has "
            "stored a second time cannot be distinguished from the others; --all takes all letters that are there, "
            "also these"
        )
    _remove(dead, {name: live[name] for name in added}, snapshot_id, pipeline)


def _remove(dead: Table, taken: Mapping[str, Any], snapshot_id: int, pipeline: str) -> None:
    """Removes the letters of a pipeline from files."""
    committer, names = _committer(dead, pipeline), pa.array(letter_names(pipeline))
    with closing(dead.engine.task_writer(base_snapshot_id=None)) as writer:
        gone: list[Any] = []
        scan = dead.scan()
        for split in scan.plan():
            for part in _files_of(split, taken.keys()):
                others, count = [], 0
                for batch in scan.read_split(part):
                    is_other = pc.invert(pc.is_in(batch.column("pipeline"), names))  # type: ignore[attr-defined]
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


def _committer(dead: Table, pipeline: str) -> Committer:
    return dead.engine.committer(f"{replay_user(pipeline)}-removal", QUERY_ID)


def _has_letters(dead: Table, snapshot_id: int, names: Collection[str], pipeline: str) -> bool:
    """Whether files of a snapshot hold letters of a pipeline: those of others may have been replayed meanwhile."""
    scan, own = dead.scan(["pipeline"], snapshot_id=snapshot_id), pa.array(letter_names(pipeline))
    return any(
        pc.any(pc.is_in(batch.column("pipeline"), own)).as_py()
        for split in scan.plan()
        for part in _files_of(split, names)
        for batch in scan.read_split(part)
    )


def _files_of_commit(dead: Table, user: str, identifier: int) -> set[str]:
    """The files that a commit has added; raises where its snapshot has expired."""
    for snapshot in reversed(dead.snapshots()):
        if (snapshot.commit_user, snapshot.commit_identifier) == (user, identifier):
            before = _files_at(dead, snapshot.id - 1)
            return _files_at(dead, snapshot.id).keys() - before.keys()
    raise _expired(dead, identifier)


def _files_of(split: Split, names: Collection[str]) -> Iterator[Split]:
    """The files of a split that have these names, each as a split of its own."""
    for file in split.files:
        if file.file_name in names:
            yield replace(split, files=(file,))


def _without(entry: Any) -> CommitMessage:
    return CommitMessage(entry.partition, entry.bucket, entry.total_buckets, deleted_files=(entry.file,))


def _files_at(dead: Table, snapshot_id: int | None) -> dict[str, Any]:
    """The manifest entries of a snapshot's files, the latest if None, by file name."""
    try:
        return {entry.file.file_name: entry for entry in dead.files(snapshot_id=snapshot_id)}
    except NotFoundError as error:
        raise _expired(dead, snapshot_id) from error


def _expired(dead: Table, snapshot_id: int | None) -> InvalidRequestError:
    return InvalidRequestError(
        f"table {dead.name}: snapshot {snapshot_id}, up to which the last replay went, has expired, so the dead "
        "letters that are new cannot be distinguished from those replayed already; --all takes all of them"
    )
