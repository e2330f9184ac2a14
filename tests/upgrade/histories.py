"""Tables for golden archives that people change by hand later: deletes, merges, tags and rollbacks of what an earlier
head has committed."""

from __future__ import annotations

from typing import Final

from tests.upgrade.shapes import ENGINES, WAYS, Shape

_DYNAMIC: Final = {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}

HISTORIES: Final = (
    Shape("plain", "deduplicate", {"bucket": "2"}, partitioned=True),
    Shape("lookup", "deduplicate", {"bucket": "1", **WAYS["lookup"]}),
    Shape("input_changes", "deduplicate", {"bucket": "1", **WAYS["input"]}),
    Shape("vectors", "deduplicate", {"bucket": "1", **WAYS["vectors"]}),
    Shape("dynamic_vectors", "deduplicate", {**_DYNAMIC, **WAYS["vectors-lookup"]}, partitioned=True),
    Shape("sums", "sums", {"bucket": "1", **ENGINES["sums"], **WAYS["lookup"]}),
    Shape("rows", "append", {}, partitioned=True),
    Shape("marked_rows", "append", {"deletion-vectors.enabled": "true"}),
)
