"""Options that are allowed, and together do something that is easily overlooked: a warning when a writer is opened.

| options | what happens |
|---|---|
| `write-only` with `changelog-producer` lookup or full-compaction | no change is emitted until another job compacts |
| `changelog-producer=lookup` with `lookup-wait=false` | changes are emitted when level 0 is compacted, later |
| `precommit-compact` with a changelog producer | engines other than Flink cannot read the changelog |

Options of Paimon that are taken and do nothing here (`unheeded_options`):

| option | why |
|---|---|
| `file-index.<type>.columns` of types such as `bsi`, and of values in maps | such indexes are not written |
| `write-buffer-for-append` | rows of append tables are always buffered |
| `record-level.expire-time` | rows of tables without a primary key do not expire |
| `postpone.merge-on-read` | rows that wait for their bucket are read once a compaction has put them there |

Source: MERGING.md §1.5, §4.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declaration import OPTIONS
from freshet.storage.options.file_indexes import PREFIX, WRITTEN, indexed_columns, is_part_of_map


def risky_options(options: CoreOptions) -> list[str]:
    """A warning for each risky combination among these options."""
    if not options.has_primary_key:
        return []
    return [*_late(options), *_packed(options)]


def unheeded_options(options: CoreOptions) -> list[str]:
    """A sentence for each option that was set and does nothing."""
    warnings = []
    indexes = {
        f"{PREFIX}{each.kind}.columns" if each.kind not in WRITTEN else f"{PREFIX}{each.kind}.columns={each.column}"
        for each in indexed_columns(options.given)
        if each.kind not in WRITTEN or is_part_of_map(each.column)
    }
    if indexes:
        warnings.append(
            f"{', '.join(sorted(indexes))} has no effect: of the indexes of data files, Freshet writes "
            f"{', '.join(sorted(WRITTEN))}, of columns"
        )
    if options.write_buffer_for_append:
        warnings.append(
            "write-buffer-for-append=true has no effect: rows of append tables are always buffered, within "
            "write-buffer-size"
        )
    if options.record_level_expire_time_ms is not None and not options.has_primary_key:
        warnings.append(
            "record-level.expire-time has no effect: rows of tables without a primary key do not expire, in Apache "
            "Paimon neither"
        )
    if options.given.get("postpone.merge-on-read", "").lower() == "true":
        warnings.append(
            "postpone.merge-on-read=true has no effect: scans show rows that wait for their bucket once `freshet "
            "compact` has put them there"
        )
    return warnings


def former_values(given: Mapping[str, str]) -> list[str]:
    """A sentence for each value, of options as text, that is given by its former name."""
    return [
        f"{key}={text} is now called {value}; the old name works until 1.0, and tables that older releases of Freshet "
        "open too keep it"
        for key, text in given.items()
        if key in OPTIONS
        for former, value in OPTIONS[key].former_values
        if text.lower() == former
    ]


def present_value(key: str, text: str) -> str:
    """The value by its present name, where it is given by a former one."""
    formers = dict(OPTIONS[key].former_values) if key in OPTIONS else {}
    return str(formers.get(text.lower(), text))


def _packed(options: CoreOptions) -> list[str]:
    if not options.precommit_compact or options.changelog_producer is ChangelogProducer.NONE:
        return []
    return [
        "precommit-compact=true packs the changelog files of a commit as the Flink sink of Apache Paimon does; Flink "
        "and Freshet read them, other engines with Paimon do not: leave the option out where they read the changelog"
    ]


def _late(options: CoreOptions) -> list[str]:
    producer = options.changelog_producer
    if options.compacts_elsewhere and producer.emits.in_compactions:
        cause = "write-only=true never does" if options.write_only else "with bucket=-2 writers never do"
        return [
            f"changelog-producer={producer} makes the changelog when it compacts, and {cause}: "
            "readers of changes see nothing until another job compacts the table; run `freshet compact` with the writer"
        ]
    if producer.emits.by_lookup and not options.commits_empty_level_0:
        return [
            "with lookup-wait=false commits do not wait for the compaction that makes the changelog: changes are "
            "emitted late; leave the option out to have them with each commit"
        ]
    return []
