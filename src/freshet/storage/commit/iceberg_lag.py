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
import re
from typing import Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot

STORAGE: Final = "metadata.iceberg.storage"

_METADATA: Final = re.compile(r"v(\d+)\.metadata\.json")

_LOG: Final = logging.getLogger(__name__)
_WARNED: Final[set[str]] = set()
"""Locations of tables that this process has warned of."""


def has_iceberg_metadata(store: TableStore) -> bool:
    """Whether the options of the table ask Apache Paimon for Iceberg metadata."""
    return store.options.given.get(STORAGE, "disabled").strip().lower() != "disabled"


def snapshots_behind(store: TableStore, latest: Snapshot) -> int:
    """Snapshots after the newest that has Iceberg metadata, all of them where none has; 0 where none is asked for, or
    the metadata is kept where it cannot be read here."""
    folder = _metadata_folder(store) if has_iceberg_metadata(store) else None
    if folder is None:
        return 0
    found = (_METADATA.fullmatch(each.name) for each in store.env.file_io.entries(folder))
    return max(0, latest.id - max((int(each[1]) for each in found if each is not None), default=0))


def _metadata_folder(store: TableStore) -> str | None:
    """`table-location` keeps it in the table, the catalogs of Iceberg below the warehouse unless told otherwise."""
    storage = store.options.given.get(STORAGE, "").strip().lower()
    place = store.options.given.get(f"{STORAGE}-location", "").strip().lower()
    is_in_table = place == "table-location" if place else storage == "table-location"
    if is_in_table or place not in ("", "catalog-location"):
        return f"{store.paths.location}/metadata"
    database, _, table = store.paths.location.rpartition("/")
    warehouse, _, name = database.rpartition("/")
    return f"{warehouse}/iceberg/{name.removesuffix('.db')}/{table}/metadata"


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
