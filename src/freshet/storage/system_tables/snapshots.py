"""`$snapshots`: the snapshots that are still there, oldest first.

`commit_time` is on the wall clock of the process that asks, as in the other tables here.

Source: MERGING.md §6.6; FORMAT.md §3.1.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.system_tables.definition import MetadataRows, SystemTableDefinition, columns_of, fields_of

FIELDS: Final = fields_of(
    snapshot_id="BIGINT NOT NULL",
    schema_id="BIGINT NOT NULL",
    commit_user="STRING NOT NULL",
    commit_identifier="BIGINT NOT NULL",
    commit_kind="STRING NOT NULL",
    commit_time="TIMESTAMP(3) NOT NULL",
    base_manifest_list="STRING NOT NULL",
    delta_manifest_list="STRING NOT NULL",
    changelog_manifest_list="STRING",
    total_record_count="BIGINT",
    delta_record_count="BIGINT",
    changelog_record_count="BIGINT",
    watermark="BIGINT",
    next_row_id="BIGINT",
    operation="STRING",
)


def _source(store: TableStore, _snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(
        FIELDS,
        lambda: columns_of(
            FIELDS,
            [
                (
                    each.id,
                    each.schema_id,
                    each.commit_user,
                    each.commit_identifier,
                    str(each.commit_kind),
                    store.env.wall_clock_ms(each.time_ms),
                    each.base_manifest_list,
                    each.delta_manifest_list,
                    each.changelog_manifest_list,
                    each.total_record_count,
                    each.delta_record_count,
                    each.changelog_record_count,
                    each.watermark,
                    each.next_row_id,
                    each.operation,
                )
                for each in store.snapshots.all()
            ],
        ),
    )


SNAPSHOTS: Final = SystemTableDefinition("snapshots", "the snapshots that are still there", _source, FIELDS)
