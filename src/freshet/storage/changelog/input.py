"""Changelog producer `input`: the rows as they were written.

| rows of a key in one flush | changelog | level 0 |
|---|---|---|
| any number, any kinds | all of them, kinds and values as written | what they merge to |

Rows are in the order in which they are merged: by key, then sequence fields, then arrival. What the table held before
is not looked at, so the input must bring -U and -D itself; rows of ignored kinds (`ignore-delete`,
`ignore-update-before`) are in neither. The files belong to the APPEND snapshot.

Source: MERGING.md §1.2, §4.1.
"""

from __future__ import annotations

import pyarrow as pa

from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import KeySegments
from freshet.storage.merge.merge_function import stored_columns


def input_rows(segments: KeySegments) -> pa.Table:
    """All rows of a buffer, in order."""
    return take_rows(segments.rows, segments.order, stored_columns(segments.rows))
