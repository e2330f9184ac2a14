"""Tables that sequences of verbs are drawn for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.contract.verbs.model import FIRST_COLUMNS, K, P

KEPT = {"snapshot.num-retained.min": "1000", "snapshot.num-retained.max": "100000"}
"""Nothing expires after commits."""
_DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}
_FOLLOWED = {"streaming-read-overwrite": "true"}
_VECTORS = {"deletion-vectors.enabled": "true"}
_EAGER = {"num-sorted-run.compaction-trigger": "2"}


@dataclass(frozen=True)
class VerbTable:
    """A kind of table."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[int, ...] = (P, K)
    partitioned: bool = True

    @property
    def primary_keys(self) -> list[str]:
        return [FIRST_COLUMNS[number].name for number in self.keys]

    @property
    def partition_keys(self) -> list[str]:
        return ["p"] if self.partitioned else []

    @property
    def has_buckets(self) -> bool:
        """Whether rows are in buckets, whose writers compact them."""
        return bool(self.keys) or self.options["bucket"] != "-1"

    @property
    def moves_rows(self) -> bool:
        """Whether a key may be in any partition."""
        return bool(self.keys) and self.partitioned and P not in self.keys

    @property
    def follows_overwrites(self) -> bool:
        """Whether a stream tells what an OVERWRITE changes."""
        return "streaming-read-overwrite" in self.options

    @property
    def needs_upserts(self) -> bool:
        """Whether a stream has the rows as they were written, for want of a changelog."""
        return bool(self.keys) and "changelog-producer" not in self.options


VERB_TABLES = (
    VerbTable("plain", {"bucket": "2", **_FOLLOWED, **_EAGER}),
    VerbTable("lookup", {"bucket": "1", "changelog-producer": "lookup"}),
    VerbTable("input", {"bucket": "2", "changelog-producer": "input", **_FOLLOWED}, (K,), partitioned=False),
    VerbTable("vectors", {"bucket": "1", **_VECTORS}),
    VerbTable("dynamic", {**_DYNAMIC, **_FOLLOWED, **_EAGER}),
    VerbTable("dynamic_vectors", {**_DYNAMIC, **_VECTORS, "changelog-producer": "lookup"}),
    VerbTable("moving", {**_DYNAMIC, "changelog-producer": "lookup"}, (K,)),
    VerbTable("append", {"bucket": "-1"}, ()),
    VerbTable("append_vectors", {"bucket": "-1", **_VECTORS}, (), partitioned=False),
    VerbTable("append_buckets", {"bucket": "2", "bucket-key": "k"}, ()),
)
