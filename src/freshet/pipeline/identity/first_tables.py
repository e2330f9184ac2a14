"""The table that each source of a pipeline reads: the first one seen, which its snapshots carry from then on.

    {"0": ["shop", "public", "orders"], "2": ["shop", "public", "payments"]}        by source, in the order of the file

It travels with the commit user in the snapshots' history (`Committer.commit`, `carried`), so that the second table is
noticed in whichever batch it comes, after any restart. Sources with `only` are not looked at. A replay of dead letters
is held to the tables of its pipeline, and adds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

from freshet.pipeline.decode.outcomes import SeenTable
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import StoppedByRecordError

FirstTables = Mapping[int, SourceTable]
"""By the index of the source."""


def first_tables(text: str | None) -> FirstTables:
    """What the history carries."""
    document = orjson.loads(text) if text else {}
    return {int(index): SourceTable(*table) for index, table in document.items()}


def carried_text(tables: FirstTables) -> str | None:
    """The inverse of `first_tables`; None where no source has said its table yet."""
    return orjson.dumps({str(index): list(tables[index]) for index in sorted(tables)}).decode() if tables else None


def after_batch(known: FirstTables, seen: Iterable[SeenTable]) -> FirstTables:
    """The tables once a batch is committed; raises `StoppedByRecordError` where a source has a second one."""
    found: dict[int, SeenTable] = {}
    for each in sorted(seen):
        first = known.get(each.source_index)
        if first is None:
            first = found.setdefault(each.source_index, each).table
        if first != each.table:
            raise StoppedByRecordError(_second_table_text(first, each, found.get(each.source_index)))
    return {**known, **{index: each.table for index, each in found.items()}}


def _second_table_text(first: SourceTable, second: SeenTable, begun: SeenTable | None) -> str:
    where = "until now" if begun is None else f"at {begun.where}"
    return (
        f"sources[{second.source_index}] reads records of two tables: {first} ({where}) and {second.table} (at "
        f"{second.where}); rows of one would overwrite rows of the other. Nothing of the batch was committed. Say in "
        f"the file which one it reads, with only: {first.as_only} (records of other tables are passed over, and "
        "counted), or with only: any that all of them are one table (shards, or a table that was renamed)"
    )
