"""Which producer emits the changes of a compaction, by the options of the table.

| `changelog-producer` | compactions that emit |
|---|---|
| `none`, `input` | none |
| `lookup` | those above level 0 with a file of level 0 among their inputs |
| `full-compaction` | those to the highest level |

Source: MERGING.md §4.
"""

from __future__ import annotations

from typing import assert_never

from freshet.storage.changelog.changed_rows import CompactionChangelog
from freshet.storage.changelog.full_compaction import FullCompactionChangelog
from freshet.storage.changelog.lookup import FirstRowChangelog, LookupChangelog
from freshet.storage.changelog.row_deduplicate import SameValues
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import ChangelogProducer, MergeEngine
from freshet.storage.options.core import CoreOptions


def compaction_changelog(
    schema: TableSchema, options: CoreOptions, *, output_level: int, max_level: int, takes_level_0: bool
) -> CompactionChangelog | None:
    """The producer of one rewrite, or None if it emits nothing; `takes_level_0` is about its own inputs."""
    unchanged = _unchanged(schema, options)
    match options.changelog_producer:
        case ChangelogProducer.NONE | ChangelogProducer.INPUT:
            return None
        case ChangelogProducer.LOOKUP:
            if output_level == 0 or not takes_level_0:
                return None
            is_first_row = options.merge_engine is MergeEngine.FIRST_ROW
            return FirstRowChangelog() if is_first_row else LookupChangelog(unchanged)
        case ChangelogProducer.FULL_COMPACTION:
            return FullCompactionChangelog(max_level, unchanged) if output_level == max_level else None
        case unknown:
            assert_never(unknown)


def _unchanged(schema: TableSchema, options: CoreOptions) -> SameValues | None:
    if not options.changelog_row_deduplicate:
        return None
    passed_over = {*(options.changelog_row_deduplicate_ignore_fields or ()), *schema.primary_keys}
    return SameValues(tuple(name for name in schema.column_names if name not in passed_over))
