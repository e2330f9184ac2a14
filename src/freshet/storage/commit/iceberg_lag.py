"""Tables of which Apache Paimon keeps Iceberg metadata too (`metadata.iceberg.storage`), and what our commits do to it.

After each of its commits Paimon writes the metadata of that snapshot, in `<table>/metadata/` or in
`<warehouse>/iceberg/`, from that of the snapshot before. Freshet writes none and touches none. Where the snapshot
before is ours, Paimon makes the metadata anew, with that one snapshot; until then readers of Iceberg see the table as
it was after Paimon's last commit, and expiry may take files away from them.

An id of which there is metadata already counts as done. So ids must not be used again: `history_cut` is refused.

Source: Apache Paimon 2.0.0, IcebergCommitCallback.
"""

from __future__ import annotations

import logging
from typing import Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.metadata.table_store import TableStore

STORAGE: Final = "metadata.iceberg.storage"

_LOG: Final = logging.getLogger(__name__)
_WARNED: Final[set[str]] = set()
"""Locations of tables that this process has warned of."""


def has_iceberg_metadata(store: TableStore) -> bool:
    """Whether the options of the table ask Apache Paimon for Iceberg metadata."""
    return store.options.given.get(STORAGE, "disabled").strip().lower() != "disabled"


def warn_of_lag(store: TableStore) -> None:
    """Says once in a process that a table's Iceberg metadata does not follow our commits."""
    if not has_iceberg_metadata(store) or store.location in _WARNED:
        return
    _WARNED.add(store.location)
    _LOG.warning(
        "table %s: %s=%s, and Freshet writes no Iceberg metadata: readers of Iceberg see the table as of the last "
        "commit of Apache Paimon until Paimon commits again, and may miss files that expire meanwhile",
        *(store.name, STORAGE, store.options.given[STORAGE]),
    )


def refuse_reused_ids(store: TableStore) -> None:
    """Raises `UnsupportedFeatureError` where snapshot ids cannot be used again."""
    if has_iceberg_metadata(store):
        raise UnsupportedFeatureError(
            f"table {store.name} has Iceberg metadata ({STORAGE}), which Apache Paimon takes for that of the new "
            "snapshots if their ids are used again; roll back without delete_newer, in a new snapshot",
            table=store.name,
            option=STORAGE,
        )
