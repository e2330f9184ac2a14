"""The tag that a batch program leaves (`tag.automatic-creation=batch`): the day's, at the latest snapshot.

    batch-write-2026-03-01      by the time of the snapshot's commit, in sink.process-time-zone
    tag.batch.customized-name   instead of it

One of the same name is replaced. `tag.num-retained-max` counts the tags of days. Apache Paimon 2.0.0 makes such tags in
the batch sink of its Flink connector alone, deletes one before it makes it anew, and counts, and removes, the tags that
people have made too; all three are left.

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from freshet.storage.exceptions import AlreadyExistsError, StorageError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.options.choices import TagCreation, TagPeriodChoice
from freshet.storage.options.core import PERIOD_MS
from freshet.storage.tags.creation import create_tag, replace_tag, tag_of
from freshet.storage.tags.period import TagPeriod
from freshet.storage.tags.removal import remove_tag
from freshet.storage.tags.rule import process_time_zone

_LOG: Final = logging.getLogger(__name__)

PREFIX: Final = "batch-write-"
_DAY: Final = TagPeriod(PERIOD_MS[TagPeriodChoice.DAILY], "%Y-%m-%d")


def leave_batch_tag(store: TableStore) -> None:
    """Makes the tag of a batch program that ends, where the table wants one; failures are logged."""
    if store.options.tag_automatic_creation is TagCreation.BATCH:
        try:
            create_batch_tag(store)
        except StorageError as error:
            _LOG.warning("table %s: the tag of this batch was not made, make one by hand: %s", store.location, error)


def create_batch_tag(store: TableStore) -> str | None:
    """Makes or replaces the tag; its name, None for a table without a snapshot."""
    latest = store.snapshots.latest()
    if latest is None:
        return None
    name = store.options.tag_batch_customized_name
    if name is None:
        name = PREFIX + _DAY.name(process_time_zone(store.options, store.env).wall_ms(latest.time_ms))
    tag = tag_of(store, name, latest, None)
    try:
        create_tag(store, tag)
    except AlreadyExistsError:
        old = store.snapshots.tags.find(name)
        if old is not None:
            replace_tag(store, old, tag)
    _remove_oldest(store)
    return name


def _remove_oldest(store: TableStore) -> None:
    most = store.options.tag_num_retained_max
    if most is None:
        return
    tags = store.snapshots.tags.tags()
    days = sorted(
        name for name in tags if re.match(PREFIX, name) and _DAY.begin_ms(name.removeprefix(PREFIX)) is not None
    )
    for name in days[: max(0, len(days) - most)]:
        remove_tag(store, tags[name])
