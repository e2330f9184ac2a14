"""The options of a table: partitions that expire, or are done."""

from __future__ import annotations

from typing import Final

from freshet.storage.options.option import DURATION, FLAG, INT, TEXT, WORD, Option
from freshet.storage.options.refusal import Access, Refusal, is_none_of

STRATEGIES: Final = ("values-time", "update-time")


class PartitionExpiryOptions:
    """Partitions that expire, or are done."""

    partition_expiration_time_ms = Option("partition.expiration-time", DURATION, None)
    """Age at which a partition expires: all of its rows are deleted, by whoever commits (not with `write-only`) or by
    `Table.expire_partitions`. Streams follow it as an overwrite."""
    partition_expiration_check_interval_ms = Option("partition.expiration-check-interval", DURATION, 3_600_000)
    """Time after which a program that commits looks again for partitions to expire. The first time is at random
    within it, so that programs which end sooner expire none; 0 looks after each commit."""
    partition_expiration_strategy = Option(
        "partition.expiration-strategy",
        WORD,
        "values-time",
        refusals=(
            Refusal(
                Access.CREATE, is_none_of(*STRATEGIES), "partitions do not expire", "use values-time or update-time"
            ),
        ),
    )
    """How old a partition is: `values-time` by the time that its values say, `update-time` by its newest file."""
    partition_timestamp_pattern = Option("partition.timestamp-pattern", TEXT, None)
    """The time of a partition as a text, made of its values: `$year-$month-$day`. The first value alone if not set,
    and then a DATE or a TIMESTAMP is a time by itself."""
    partition_timestamp_formatter = Option("partition.timestamp-formatter", TEXT, None)
    """Format of that text, such as `yyyyMMdd`; `yyyy-MM-dd` or `yyyy-MM-dd HH:mm:ss` if not set. Partitions whose text
    is another, or NULL, are kept."""
    partition_expiration_max_num = Option("partition.expiration-max-num", INT, 100, above=0)
    """Partitions that expire at once at most, in the order of their values."""
    partition_expiration_batch_size = Option("partition.expiration-batch-size", INT, None, above=0)
    """Partitions that one commit deletes; all of them if not set."""
    end_input_check_partition_expire = Option("end-input.check-partition-expire", FLAG, False)
    """A writer that ends looks for partitions to expire, whatever the interval."""
    partition_mark_done_action = Option("partition.mark-done-action", TEXT, "success-file")
    """What `Table.mark_partition_done` does: `success-file` writes a file `_SUCCESS` into the folder of the partition.
    What else Apache Paimon has (`done-partition`, `mark-event`, `http-report`, `custom`) is refused when it is called.
    Nobody else marks partitions here."""
