"""The page of all system tables with their columns (`tests.docs.reference`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet.storage.system_tables.system_table import SYSTEM_TABLES

HEAD: Final = """\
# System tables

This page is made from the code (`make reference`); do not edit it.

Every table has tables that say what is in it, under its name with `$` and a word behind: `shop.orders$files`. Columns,
types and values are those of Apache Paimon 2.0; `$commits` and `$compactions` are Freshet's own
([Watch it](../how-to/watch-it.md#what-happened-before)). [Manage databases and
tables](../how-to/manage-tables.md#system-tables) has examples.

They are read, never written, and `list_tables` does not list them. Those *of a snapshot* show the latest one, or the
one that is asked for; the others show what there is now. Times are on the wall clock of the process that asks, but for
`creation_time` and `last_update_time`, which are on that of the writer, and secrets among options are hidden.

"""

_WAYS: Final = {
    "where": "how",
    "---": "---",
    "Python": (
        '`catalog.table("shop.orders$files").scan(…)`, or `orders.system("files").scan(…)`, as '
        "[`SystemTable`](python-api.md#systemtable)"
    ),
    "terminal": (
        "`freshet read WAREHOUSE 'shop.orders$files'`, with the options of [`freshet read`](commands.md#freshet-read)"
    ),
    "Spark": (
        '`spark.read.format("freshet")` with the option `table` `shop.orders$files`; system tables are not streamed'
    ),
}

_TEXTS: Final = {
    "column": "text",
    "---": "---",
    "`partition` of `$files` and `$buckets`, bounds of partitions": (
        "`{2024-02-29, 7}`, as a cast to STRING gives each value; `null` for NULL, `{}` without partition keys"
    ),
    "`partition` of `$partitions`": (
        "`dt=2024-02-29/hour=7`; NULL and blank values as `partition.default-name`; empty without partition keys"
    ),
    "`min_key`, `max_key`": (
        "`[1, a]`, as Java prints each value: a DATE is the number of days since 1970, a TIME that of milliseconds, a "
        "TIMESTAMP `2024-02-29T12:00`. BINARY and VARBINARY are hexadecimal digits: Java prints addresses in memory"
    ),
    "`null_value_counts`, `min_value_stats`, `max_value_stats`": (
        "`{id=1, name=null}`, by name, printed as keys are; `null` where the file does not say. In the columns that "
        "the table has now, whatever the file was written with"
    ),
    "`fields`, `partition_keys`, `primary_keys`, `options` of `$schemas`": "JSON",
    "`time_retained`": "ISO 8601: `PT24H`",
}

_OF_TABLE: Final = {
    "audit_log": (
        "Columns: `rowkind` (STRING: `+I`, `-U`, `+U` or `-D`), with `table-read.sequence-number.enabled` also\n"
        "`_SEQUENCE_NUMBER` (BIGINT NOT NULL), then those of the table. A keyed table has each key once, merged, with\n"
        "the kind that is stored; a key that was deleted is there as `-D` until a compaction removes it. In an append\n"
        "table every row is `+I`."
    ),
    "ro": (
        "Columns: those of the table. Nothing is merged, so reads are fast; what is not compacted into the highest\n"
        "level yet is left out. An append table has all its rows."
    ),
}


def markdown() -> str:
    """The whole page."""
    parts = [HEAD, _table(_WAYS)]
    for each in SYSTEM_TABLES.values():
        of_snapshot = " Of a snapshot." if each.travels else ""
        parts.append(f"\n## ${each.noun}\n\n{each.summary[0].upper()}{each.summary[1:]}.{of_snapshot}\n\n")
        if each.fields:
            parts.append(_table({"column": "type", "---": "---"} | {f"`{f.name}`": str(f.type) for f in each.fields}))
        else:
            parts.append(f"{_OF_TABLE[each.noun]}\n")
    return "".join([*parts, "\n## Values as texts\n\n", _table(_TEXTS)])


def _table(rows: Mapping[str, str]) -> str:
    return "".join("|---|---|\n" if first == "---" else f"| {first} | {second} |\n" for first, second in rows.items())
