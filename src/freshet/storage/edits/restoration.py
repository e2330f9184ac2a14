"""The change that gives a table the content of an earlier snapshot again, upon whatever is live when it is committed.

| live at the earlier snapshot | live now | entry |
|---|---|---|
| yes | yes, at the same level | none |
| yes | no | ADD of a copy (`file_copies`) |
| no | yes | DELETE |

Levels, sequence numbers and deletion vectors are those of the earlier snapshot. An index file is copied too where it is
not live now, or where a data file that it marks has another name.

Source: FORMAT.md §12; Apache Paimon's `rollbackToAsLatest` adds the files under their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.round_change import live_in
from freshet.storage.commit.table_view import TableView
from freshet.storage.edits.file_copies import FileCopies
from freshet.storage.exceptions import ConflictError, NotFoundError
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind, IndexEntry, ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot


class Restoration:
    """A `RoundChange`; its copies are made in the first round that needs them."""

    def __init__(
        self, store: TableStore, target: Snapshot | None, find: Callable[[], Snapshot | None] | None = None
    ) -> None:
        """None is the table before its first snapshot. `find` looks for the target again in each round: another
        rollback may have undone the commit that is to be undone, a tag may name another snapshot by now."""
        self._wanted = live_entries(store.manifests, target)
        self._wanted_index = () if target is None else store.manifests.read_index_manifest(target.index_manifest)
        self.copies = FileCopies(store)
        self._target, self._find = target, find
        self._is_handed_out = False

    def preview(self, store: TableStore, latest: Snapshot | None) -> list[ManifestEntry]:
        """The entries upon a snapshot, with the files themselves in place of their copies."""
        gone, _ = live_in(store, latest, lambda _: True)
        live, wanted = {entry.identity for entry in gone}, {entry.identity for entry in self._wanted}
        return [
            *(entry for entry in gone if entry.identity not in wanted),
            *(entry for entry in self._wanted if entry.identity not in live),
        ]

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """What differs between what is live and the target; empty where nothing does.

        Raises `ConflictError` where the target is another one by now.
        """
        self._check_target(store)
        gone, index = live_in(store, view.latest, lambda _: True)
        live = {entry.identity for entry in gone}
        wanted = {entry.identity for entry in self._wanted}
        missing = [entry for entry in self._wanted if entry.identity not in live]
        back = self._copied(missing)
        names = {entry.file.file_name: copy.file.file_name for entry, copy in zip(missing, back, strict=True)}
        self._is_handed_out = True
        kept_index, back_index = self._split_index({entry.file.file_name for entry in index}, names)
        return SnapshotChange(
            CommitKind.OVERWRITE,
            (*(entry for entry in gone if entry.identity not in wanted), *back),
            index_entries=(
                *(entry for entry in index if entry.file.file_name not in kept_index),
                *self.copies.of_index(back_index, names),
            ),
            keeps_numbers=True,
        )

    def _check_target(self, store: TableStore) -> None:
        if self._find is None:
            return
        try:
            found, reason = self._find(), None
        except NotFoundError as error:
            found, reason = None, error
        is_same = found is None if self._target is None else self._target.is_same(found)
        if reason is not None or not is_same:
            raise ConflictError(
                f"table {store.name}: others have rolled it back, or have changed the tag, while this rollback was "
                "made; nothing was committed. Look at the snapshots and tags (freshet snapshots, freshet tags), and "
                "call again where it is still wanted",
                table=store.name,
            ) from reason

    def _copied(self, missing: list[ManifestEntry]) -> list[ManifestEntry]:
        try:
            return self.copies.of(missing)
        except NotFoundError:
            if not self._is_handed_out:  # else a claim may have named some of them
                self.copies.discard()
            raise

    def _split_index(self, live: set[str], names: dict[str, str]) -> tuple[set[str], list[IndexEntry]]:
        """Names of index files that stay, and those that come back."""
        back = [
            replace(entry, kind=EntryKind.ADD)
            for entry in self._wanted_index
            if entry.file.file_name not in live or entry.marked_files & names.keys()
        ]
        coming = {entry.file.file_name for entry in back}
        return {entry.file.file_name for entry in self._wanted_index} - coming, back
