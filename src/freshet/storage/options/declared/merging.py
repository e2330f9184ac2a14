"""The options of a table: what becomes of rows of one key, and which changes are emitted."""

from __future__ import annotations

from freshet.storage.options.choices import ChangelogProducer, MergeEngine, SequenceInitMode, SortOrder
from freshet.storage.options.option import (
    COLUMN,
    COLUMN_NAMES,
    DURATION,
    FLAG,
    INT,
    NAMES,
    Access,
    Option,
    Refusal,
    Status,
    is_none_of,
    one_of,
)


class MergeOptions:
    """Merging."""

    merge_engine = Option("merge-engine", one_of(MergeEngine), MergeEngine.DEDUPLICATE, immutable=True)
    """How rows of one key become one row: `deduplicate` keeps the latest, `partial-update` the latest value of each
    column, `aggregation` folds each column by its function, `first-row` keeps the first. Never changes once the
    table has a snapshot."""
    changelog_producer = Option("changelog-producer", one_of(ChangelogProducer), ChangelogProducer.NONE)
    """Where changelog files come from: `none` keeps none; `input` keeps the rows as they were written, so the input
    must bring -U and -D itself; `lookup` finds the row before in every compaction of level 0, so each commit is
    followed by its changelog; `full-compaction` compares with the last full compaction, later and cheaper."""
    changelog_row_deduplicate = Option("changelog-producer.row-deduplicate", FLAG, False)
    """Leaves updates out of the changelog that change nothing (`lookup`, `full-compaction`)."""
    changelog_row_deduplicate_ignore_fields = Option(
        "changelog-producer.row-deduplicate-ignore-fields", COLUMN_NAMES, None
    )
    """Columns that do not count as a change, such as the time of an update."""
    ignore_delete = Option(
        "ignore-delete",
        FLAG,
        False,
        former=(
            "deduplicate.ignore-delete",
            "first-row.ignore-delete",
            "partial-update.ignore-delete",
        ),
        reinterprets=True,
    )
    """Drops -D and -U rows before the write buffer. Deletions are then lost for good."""
    ignore_update_before = Option("ignore-update-before", FLAG, False)
    """Drops -U rows before the write buffer."""
    partial_update_remove_record_on_delete = Option(
        "partial-update.remove-record-on-delete", FLAG, False, immutable=True
    )
    """A -D removes the row; without it, and without sequence groups, a delete is an error."""
    partial_update_remove_record_on_sequence_group = Option(
        "partial-update.remove-record-on-sequence-group", COLUMN_NAMES, None, immutable=True
    )
    """Ordering columns of sequence groups: a -D that does not come late for such a group removes the row."""
    aggregation_remove_record_on_delete = Option("aggregation.remove-record-on-delete", FLAG, False, immutable=True)
    """A -D removes the row instead of being retracted column by column."""
    rowkind_field = Option("rowkind.field", COLUMN, None, immutable=True)
    """Column whose text (`+I`, `-U`, `+U`, `-D`) is the kind of a row; NULL is an error."""
    sequence_field = Option("sequence.field", NAMES, (), reinterprets=True)
    """Columns that decide which of two changes of one key is later, instead of the order of arrival. A NULL is earlier
    than every value. A late change loses, a late delete as well."""
    sequence_field_sort_order = Option(
        "sequence.field.sort-order", one_of(SortOrder), SortOrder.ASCENDING, reinterprets=True
    )
    """`descending` lets the smaller value win."""
    sequence_snapshot_ordering = Option(
        "sequence.snapshot-ordering",
        FLAG,
        False,
        immutable=True,
    )
    """The change of a key that was committed later wins, whenever it was written: rows get the id of their
    snapshot for a number when they are committed. Needs `write-only=true`; other jobs compact. Of rows of a key that
    one commit brought in several files the order is not defined."""
    sequence_number_init_mode = Option(
        "write.sequence-number-init-mode",
        one_of(SequenceInitMode),
        SequenceInitMode.SCAN,
        status=Status.REFUSED,
        refusals=(
            Refusal(
                Access.WRITE,
                is_none_of("scan"),
                "the number kept in snapshots would fall behind",
                "use write.sequence-number-init-mode=scan",
            ),
        ),
    )
    """Where a writer takes its first sequence number from; only `scan` is supported."""
    deletion_vectors_enabled = Option("deletion-vectors.enabled", FLAG, False, reinterprets=True)
    """Marks deleted rows in index files, so that reads need not merge: rows show once they were compacted. In append
    tables other programs mark rows (DELETE of Paimon); they are read and compacted without them."""
    deletion_vectors_modifiable = Option("deletion-vectors.modifiable", FLAG, False)
    """Lets `Table.alter` turn `deletion-vectors.enabled` on and off once there are rows: it compacts the table in full
    first. Without it the option is fixed by then."""
    deletion_vectors_merge_on_read = Option("deletion-vectors.merge-on-read", FLAG, False)
    """Reads rows of level 0 too, before they are compacted, and merges. Slower reads of newer rows."""
    deletion_vectors_bitmap64 = Option("deletion-vectors.bitmap64", FLAG, False)
    """Writes deletion vectors with 64-bit positions; both kinds are always read. Not every reader knows them."""
    record_level_expire_time_ms = Option("record-level.expire-time", DURATION, None)
    """Compactions of keyed tables leave out rows that are older, by `record-level.time-field`. Until it is rewritten a
    row is read; no -D is emitted for it."""
    record_level_time_field = Option("record-level.time-field", COLUMN, None)
    """The column that says how old a row is: INT (seconds), BIGINT (seconds, or milliseconds from 1000000000000 on),
    TIMESTAMP or TIMESTAMP_LTZ. Rows with NULL there never expire."""
    force_lookup = Option("force-lookup", FLAG, False, immutable=True)
    """Looks up the stored row at every compaction of level 0, as the lookup changelog does, without a changelog.
    Commits take longer, reads get whole rows."""
    streaming_read_overwrite = Option("streaming-read-overwrite", FLAG, False)
    """Readers of a keyed table's changes see an overwrite too: all rows it took away, then all it added. Otherwise they
    pass over it."""
    streaming_read_append_overwrite = Option("streaming-read-append-overwrite", FLAG, False)
    """Readers of an append table's changes see the rows that an overwrite added. Otherwise they pass over it."""
    audit_log_sequence_number = Option("table-read.sequence-number.enabled", FLAG, False)
    """The [system table](system-tables.md) `$audit_log` has the sequence number of each row, in `_SEQUENCE_NUMBER`."""
    full_compaction_delta_commits_given = Option("full-compaction.delta-commits", INT, None, above=0)
    """Compacts in full, at every n-th commit, all buckets of the table that were written since the last time. 1 with
    `changelog-producer=full-compaction` if nothing else is said. Higher values write less and emit changes later."""
