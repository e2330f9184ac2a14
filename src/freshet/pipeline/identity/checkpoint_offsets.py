"""The offsets that a checkpoint goes on at, and whether a topic can have them.

    sources/<i>/0     where source i began: a byte 0, `v1`, {"topic": {"0": 5}}
    offsets/<N>       `v1`, settings, then a line for each source: where batch N ends
    commits/<N>       batch N is done

The next batch begins at the end of the last one that is done; a batch that was planned ends where its file says. What
lies beyond the end of a partition, or names one that is not there, was never read: the file said so at the first start
(Spark keeps it, whatever the file says later), or the topic was truncated or created again. What lies before the first
offset of a partition was deleted before it was read.

A folder that only Spark can reach is looked at once it runs (`checkpoint_folder`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Final

from freshet._frozen import Frozen
from freshet.logstore.exceptions import LOST
from freshet.pipeline.config.starting_offsets import Place, places_of, range_text, shown
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.known_causes import SECOND_RUN
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, CheckpointPlace, as_folder

Positions = Mapping[Place, int]

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"

SLOT: Final = "slot"
CHANGES: Final = "changes"
"""What the offset of a database has instead of a topic and an offset of it."""

_LINES_BEFORE_OFFSETS: Final = 2
"""Of Spark's files below `offsets`: the version, and what it notes of the batch."""


class CheckpointOffsets(Frozen):
    """The offsets of one source: where its next batch begins, where it ends if planned, whether any batch is done."""

    start: Positions
    planned: Positions
    has_batches: bool


def checkpoint_offsets(checkpoint: CheckpointPlace, source_index: int) -> CheckpointOffsets | None:
    """None where the checkpoint says nothing of the source, or cannot be read here."""
    folder = as_folder(checkpoint)
    if folder is None:
        return None
    planned_id, done_id = _last_number(folder, OFFSETS), _last_number(folder, COMMITS)
    planned = _ends(folder, planned_id, source_index)
    if done_id is not None and done_id == planned_id:
        return None if planned is None else CheckpointOffsets(planned, {}, has_batches=True)
    before = None if planned_id is None or planned_id == 0 else _ends(folder, planned_id - 1, source_index)
    start = before if before is not None else _begun(folder, source_index)
    if start is None and planned is None:
        return None
    return CheckpointOffsets(start or {}, planned or {}, has_batches=done_id is not None)


def lost_offset_problems(positions: Positions, bounds: Mapping[Place, tuple[int, int]]) -> Iterator[str]:
    """Offsets to go on at that are not in Kafka any more; `bounds` are first offset and end of each partition."""
    for place, offset in sorted(positions.items()):
        first, end = bounds.get(place, (offset, offset))
        if offset < first:
            yield f"goes on with {shown([place])} at offset {offset}, which has {range_text(first, end)}: {LOST}"


def checkpoint_offset_problems(
    found: CheckpointOffsets, ends: Mapping[Place, int], *, checkpoint: str
) -> Iterator[str]:
    """Offsets that cannot be, with what to do; `ends` are the next offsets of the partitions that the source reads."""
    wrong = [
        f"{shown([place])} at offset {offset}, which {f'ends at {ends[place]}' if place in ends else 'is not there'}"
        for place, offset in sorted({**found.start, **_beyond(found.planned, ends)}.items())
        if place not in ends or offset > ends[place]
    ]
    if not wrong:
        return
    if found.has_batches:
        remedy = (
            "The topic was created again, truncated or is not read any more: restore it, or the checkpoint of the same "
            "time. To start over, name another checkpoint and give the pipeline another name: it then starts as a new "
            "writer, where startingOffsets says"
        )
    else:
        remedy = (
            "Spark keeps where the first start was to begin, and no batch of it was done: delete the folder "
            f"{checkpoint} and start again, then the file counts"
        )
    yield f"goes on with {'; '.join(wrong)}. {remedy}"


def _beyond(planned: Positions, ends: Mapping[Place, int]) -> Positions:
    return {place: offset for place, offset in planned.items() if place not in ends or offset > ends[place]}


def unfinished_batch(checkpoint: CheckpointPlace) -> int | None:
    """The batch that was planned and is not done: the next run begins with it. None where there is none."""
    folder = as_folder(checkpoint)
    if folder is None:
        return None
    planned = _last_number(folder, OFFSETS)
    return None if planned == _last_number(folder, COMMITS) else planned


def finished_lines(checkpoint: CheckpointPlace) -> list[str]:
    """What the sources have read with the last batch that is done, a line of JSON each; none before the first.

    Raises `OSError` or `ValueError` where it cannot be read.
    """
    folder = as_folder(checkpoint)
    number = None if folder is None else max(folder.numbers(COMMITS), default=None)
    if folder is None or number is None:
        return []
    return (folder.read(OFFSETS, str(number)) or "").splitlines()[_LINES_BEFORE_OFFSETS:]


def offsets_by_topic(text: str | None) -> Mapping[str, Mapping[str, int]]:
    """Topic, partition and offset in the text of a source's offset; of a database its slot stands for a topic of one
    partition, and its offset for the number of the next record."""
    document = json.loads(text or "{}")
    if not isinstance(document, Mapping) or document.keys() >= {SLOT, CHANGES}:
        return {document[SLOT]: {"0": document[CHANGES]}} if isinstance(document, Mapping) else {}
    return document


def ends_of_batch(checkpoint: CheckpointPlace, number: int, source_index: int) -> dict[str, dict[str, int]] | None:
    """Where a batch ended: topic, partition, offset; None where the checkpoint does not say it, or of no Kafka source.

    Spark keeps the last hundred batches.
    """
    folder = as_folder(checkpoint)
    found = None if folder is None else _ends(folder, number, source_index)
    if found is None:
        return None
    ends: dict[str, dict[str, int]] = {}
    for place, offset in found.items():
        ends.setdefault(place[0], {})[str(place[1])] = offset
    return ends


def _last_number(folder: CheckpointFolder, name: str) -> int | None:
    with contextlib.suppress(OSError):
        return max(folder.numbers(name), default=None)
    return None


def _ends(folder: CheckpointFolder, number: int | None, source_index: int) -> Positions | None:
    if number is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        text = folder.read(OFFSETS, str(number)) or ""
        return _positions(text.splitlines()[_LINES_BEFORE_OFFSETS + source_index])
    return None


def _begun(folder: CheckpointFolder, source_index: int) -> Positions | None:
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        text = folder.read("sources", str(source_index), "0") or ""
        return _positions(text.lstrip("\0").splitlines()[1])
    return None


def _positions(line: str) -> Positions | None:
    """None for a source without offsets (`-`); raises `ValueError` or `AttributeError` for one of another kind."""
    return None if line.strip() == "-" else places_of(line)


def second_run_error(place: str, kind: ErrorKind = ErrorKind.INVALID_REQUEST) -> PipelineFailedError:
    """The error of a run that finds a file of the checkpoint written by another one."""
    return PipelineFailedError(f"{place}: {SECOND_RUN}", kind=kind)
