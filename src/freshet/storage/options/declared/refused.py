"""Options that ask for what is not supported: they are read to refuse it, and for nothing else.

Options that are read and refused for some values have these refusals where they are declared.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.options.option import TEXT, Option, Status
from freshet.storage.options.refusal import LATER, Access, Applies, Refusal, is_none_of, is_set, is_true

_LATEST: Final = "the table would be read at its latest snapshot"
_TRAVEL: Final = "leave the option out and give snapshot_id, tag or timestamp_ms to the scan"
_BETWEEN: Final = "leave the option out and call changes_between"
_REMOVE: Final = "remove the option"
_BRANCH_ROWS: Final = "the branch's rows would be missed"
_NO_BLOB: Final = "BLOB columns are not read"
_INDEX: Final = "the index would fall behind"
_CALLBACKS: Final = "the callbacks would not be called"


def _refused(
    key: str, access: Access, applies: Applies, reason: str, remedy: str = LATER, *, immutable: bool = False
) -> Option[str | None]:
    refusal = Refusal(access, applies, reason, remedy)
    return Option(key, TEXT, None, Status.REFUSED, immutable=immutable, refusals=(refusal,))


REFUSED: Final = (
    _refused("scan.snapshot-id", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.tag-name", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.timestamp", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.timestamp-millis", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.watermark", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.version", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.creation-time-millis", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.file-creation-time-millis", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.bucket", Access.READ, is_set, "all buckets would be read", "leave the option out"),
    _refused("incremental-between", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("incremental-between-timestamp", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("incremental-between-tag-to-snapshot", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("incremental-to-auto-tag", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("scan.mode", Access.READ, is_none_of("default", "latest", "latest-full", "full"), _LATEST, _TRAVEL),
    _refused(
        "index-file-in-data-file-dir", Access.READ, is_true, "index files are sought in folder index", immutable=True
    ),
    _refused("scan.fallback-branch", Access.READ, is_set, "the branch's partitions would be missed"),
    _refused("scan.fallback-snapshot-branch", Access.READ, is_set, _BRANCH_ROWS),
    _refused("scan.fallback-delta-branch", Access.READ, is_set, _BRANCH_ROWS),
    _refused("scan.primary-branch", Access.READ, is_set, _BRANCH_ROWS),
    _refused("chain-table.enabled", Access.READ, is_true, "rows of the chained branches would be missed"),
    _refused(
        "data-evolution.enabled",
        Access.READ,
        is_true,
        "files that hold some columns only would be read as rows",
        immutable=True,
    ),
    _refused("pk-clustering-override", Access.READ, is_true, "files are not in key order", immutable=True),
    _refused("query-auth.enabled", Access.READ, is_true, "row and column permissions would be passed over"),
    _refused(
        "type",
        Access.READ,
        is_none_of("table", "materialized-table"),
        "it is not a table of the Paimon format",
        "read it with the engine it belongs to",
        immutable=True,
    ),
    _refused("blob-field", Access.READ, is_set, _NO_BLOB, immutable=True),
    _refused("blob-descriptor-field", Access.READ, is_set, _NO_BLOB, immutable=True),
    _refused("blob-view-field", Access.READ, is_set, _NO_BLOB, immutable=True),
    _refused("vector-field", Access.READ, is_set, "VECTOR columns are not read"),
    _refused("row-tracking.enabled", Access.WRITE, is_true, "rows would have no row id", immutable=True),
    _refused("data-file.external-paths", Access.WRITE, is_set, "files would lie in the table folder"),
    _refused("pk-vector.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("pk-btree.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("pk-bitmap.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("pk-full-text.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("upsert-key", Access.WRITE, is_set, "rows would not be matched by the key"),
    _refused("commit.callbacks", Access.WRITE, is_set, _CALLBACKS, _REMOVE),
    _refused("tag.callbacks", Access.WRITE, is_set, _CALLBACKS, _REMOVE),
    _refused(
        "path",
        Access.CREATE,
        is_set,
        "a table lies in the folder of its database",
        "leave the option out, or choose another warehouse",
    ),
    _refused(
        "metadata.iceberg.storage",
        Access.CREATE,
        is_none_of("disabled"),
        "Freshet writes no Iceberg metadata",
        "leave the option out, or create the table with Apache Paimon",
    ),
    _refused("clustering.columns", Access.CREATE, is_set, "rows are not clustered", _REMOVE),
)
"""In the order in which they are looked at."""

MOVED_OUT: Final = {"primary-key": "primary_keys", "partition": "partition_keys"}
"""Options of the format that are arguments here."""
