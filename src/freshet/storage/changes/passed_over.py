"""What a stream says when it passes over an overwrite, as its options have it: from there on what is made of the
changes is not what the table holds."""

from __future__ import annotations

import logging
from typing import Final

from freshet.storage.changes.change_source import ChangeRules, ChangeSource
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer

_LOG: Final = logging.getLogger(__name__)


class PassedOver:
    """Of one reader, which says it once."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._is_said = False

    def notice(self, snapshot: Snapshot, rules: ChangeRules) -> None:
        """A snapshot is read next, by these rules."""
        is_overwrite = snapshot.commit_kind is CommitKind.OVERWRITE and not snapshot.is_rescale
        if self._is_said or not is_overwrite or rules.source(snapshot) is not ChangeSource.NOTHING:
            return
        self._is_said = True
        _LOG.warning(
            "table %s: a stream passes over snapshot %d, an OVERWRITE by %s, and over those that follow: rows that "
            "they take away or add are not told, so what was made of the changes differs from the table from here on. "
            "Read the table anew: without the consumer or checkpoint, scan.mode latest-full%s",
            self._store.name,
            snapshot.id,
            snapshot.commit_user,
            _option_text(rules),
        )


def _option_text(rules: ChangeRules) -> str:
    if not rules.has_primary_key:
        return ""  # with `streaming-read-append-overwrite` rows that were only copied come again, and none leaves
    if rules.producer in (ChangelogProducer.NONE, ChangelogProducer.INPUT):
        return ". With streaming-read-overwrite=true streams follow overwrites"
    return ""
