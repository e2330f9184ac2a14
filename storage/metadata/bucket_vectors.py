"""The deletion vectors of one bucket as seen by who works on it: those committed, and what was marked since.

A value: marking gives another one. Source: FORMAT.md §10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.metadata.deletion_vector_store import DeletionVectorStore
from freshet.storage.model.index_file import IndexFileMeta

_NOTHING: Final[Mapping[str, Bitmap32]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BucketVectors:
    """`index_files` are the committed ones of the bucket, `marks` the rows marked since, by name of the data file."""

    store: DeletionVectorStore
    index_files: tuple[IndexFileMeta, ...] = ()
    marks: Mapping[str, Bitmap32] = field(default_factory=lambda: _NOTHING)

    @property
    def marked_files(self) -> frozenset[str]:
        """Data files that rows of are deleted."""
        places = (place for index_file in self.index_files for place in index_file.deletion_vectors or ())
        return frozenset(place.data_file_name for place in places) | self.marks.keys()

    def of(self, file_name: str) -> Bitmap32 | None:
        """Deleted rows of a data file; None when there are none."""
        marked, committed = self.marks.get(file_name), self.store.read(self.index_files, file_name)
        if marked is None or committed is None:
            return committed if marked is None else marked
        return committed | marked

    def marking(self, marks: Mapping[str, Bitmap32]) -> BucketVectors:
        """The vectors with more rows marked."""
        both = dict(self.marks)
        for name, rows in marks.items():
            known = both.get(name)
            both[name] = rows if known is None else known | rows
        return BucketVectors(self.store, self.index_files, MappingProxyType(both))

    def without(self, gone: Collection[str]) -> dict[str, Bitmap32]:
        """All vectors but those of the data files that are gone: what an index file of the bucket is to hold."""
        names = sorted(self.marked_files.difference(gone))
        return {name: rows for name in names if (rows := self.of(name)) is not None}
