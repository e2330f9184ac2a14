"""Levels whose files overlap: damage that no merge can see past.

A level above 0 is one sorted run, so it has a key once. Where two of its files share keys, readers that take the level
for one run give a row twice. Other writers can make such levels, and earlier releases of Freshet could.
`freshet compact --repair` merges the level again with each file as a run of its own.
"""

from __future__ import annotations

from itertools import pairwise

from freshet.storage.exceptions import CorruptDataError
from freshet.storage.merge.sorted_runs import Levels


def overlapping_levels(levels: Levels) -> dict[int, str]:
    """By level: the names of two of its files that overlap, as a message has them."""
    found: dict[int, str] = {}
    for each in levels.runs:
        for left, right in pairwise(each.run.files if each.level > 0 else ()):
            if not levels.key_order(left.max_key) < levels.key_order(right.min_key):
                found[each.level] = f"files {left.file_name} and {right.file_name} overlap at level {each.level}"
                break
    return found


def overlap_error(folder: str, reason: str) -> CorruptDataError:
    """What is said of a bucket, by its folder, with such a level."""
    return CorruptDataError(
        f"{reason}, so that a key may be there twice; nothing was committed. Merge the level again: "
        "freshet compact WAREHOUSE TABLE --repair",
        path=folder,
    )
