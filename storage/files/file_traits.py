"""What tells data files and changelog files of one level apart: how they are named, encoded and described.

| | data file | changelog file |
|---|---|---|
| prefix | `data-file.prefix` | `changelog-file.prefix` |
| format | `file.format`, by level | `changelog-file.format`, else as data files |
| codec | `file.compression`, by level | `changelog-file.compression`, else as data files |
| statistics | `metadata.stats-mode`, by level | `changelog-file.stats-mode`, else as data files |
| a file ends at | `target-file-size`, written rows also at `target-file-row-num` | `target-file-size` |

Source: FORMAT.md §7.5; MERGING.md §1.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshet.storage.options.core import CoreOptions


@dataclass(frozen=True, slots=True)
class FileTraits:
    """The left or the right column of the table above, at one level; `stats_mode` is that of columns without one of
    their own.
    """

    prefix: str
    file_format: str
    compression: str
    stats_mode: str
    is_changelog: bool = False


def data_file_traits(options: CoreOptions, level: int) -> FileTraits:
    """Data files of a level."""
    return FileTraits(
        options.data_file_prefix,
        options.format_at_level(level),
        options.compression_at_level(level),
        options.stats_mode_at_level(level),
    )


def changelog_file_traits(options: CoreOptions, level: int) -> FileTraits:
    """Changelog files of changes that went to a level."""
    return FileTraits(
        options.changelog_file_prefix,
        options.changelog_format_at_level(level),
        options.changelog_compression_at_level(level),
        options.changelog_stats_mode_at_level(level),
        is_changelog=True,
    )
