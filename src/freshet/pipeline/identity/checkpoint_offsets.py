"""The offsets that a checkpoint goes on at, and whether a topic can have them.

    sources/<i>/0     where source i began: a byte 0, `v1`, {"topic": {"0": 5}}
    offsets/<N>       `v1`, settings, then a line for each source: where batch N ends
    commits/<N>       batch N is done

The next batch begins at the end of the last one that is done; a batch that was planned ends where its file says. What
lies beyond the end of a partition, or names one that is not there, was never read: the file said so at the first start
(Spark keeps it, whatever the file says later), or the topic was truncated or created again.

Folders on object stores are not looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from freshet.pipeline.config.starting_offsets import Place, places_of, shown
from freshet.pipeline.identity.checkpoint_owner import local_folder

Positions = Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class CheckpointOffsets:
    """Of one source: where its next batch begins, where it ends if it was planned, whether any batch is done."""

    start: Positions
    planned: Positions
    has_batches: bool


def checkpoint_offsets(checkpoint: str, source_index: int) -> CheckpointOffsets | None:
    """None where the checkpoint says nothing of the source, or cannot be read here."""
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    planned_id, done_id = _last_number(folder / "offsets"), _last_number(folder / "commits")
    planned = _ends(folder / "offsets", planned_id, source_index)
    if done_id is not None and done_id == planned_id:
        return None if planned is None else CheckpointOffsets(planned, {}, has_batches=True)
    before = None if planned_id is None or planned_id == 0 else _ends(folder / "offsets", planned_id - 1, source_index)
    start = before if before is not None else _begun(folder / "sources" / str(source_index) / "0")
    if start is None and planned is None:
        return None
    return CheckpointOffsets(start or {}, planned or {}, has_batches=done_id is not None)


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


def _last_number(folder: Path) -> int | None:
    with contextlib.suppress(OSError):
        numbers = [int(file.name) for file in folder.iterdir() if file.name.isdecimal()]
        return max(numbers, default=None)
    return None


def _ends(folder: Path, number: int | None, source_index: int) -> Positions | None:
    if number is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        return _positions((folder / str(number)).read_text(encoding="utf-8").splitlines()[2 + source_index])
    return None


def _begun(file: Path) -> Positions | None:
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        return _positions(file.read_text(encoding="utf-8").lstrip("\0").splitlines()[1])
    return None


def _positions(line: str) -> Positions | None:
    """None for a source without offsets (`-`); raises `ValueError` or `AttributeError` for one of another kind."""
    return None if line.strip() == "-" else places_of(line)
