"""The command compact-manifests."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.storage.model.display import size_text


def compact_manifests(
    warehouse: Warehouse,
    table: TableName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what there is; nothing is committed.")] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Merge the small manifests of a table, and those with deletes, in one snapshot. No row changes.

    Commits do this as they go, once manifest.merge-min-count or manifest.full-compaction-threshold-size is reached;
    done by hand, readers of a table of many small commits plan with fewer requests.
    """
    opened = open_table(warehouse, table, catalog_option)
    with working(f"merging manifests of {table}"):
        result = opened.compact_manifests(dry_run=dry_run)
    if as_json:
        print_json(asdict(result))
        return
    before, after = result.before, result.after
    counts = f"{plural(before.count, 'manifest')} ({size_text(before.size_bytes)}), {before.small_count} of them small"
    deletes = f"{plural(before.deleted_count, 'delete')} in them"
    if not result.is_due:
        say(f"nothing to merge: {counts}, {deletes}")
    elif dry_run:
        say(f"would merge {counts}, {deletes}; nothing was committed")
    else:
        made = f"{after.count} ({size_text(after.size_bytes)}) in snapshot {result.snapshot_id}"
        say(f"merged {counts}, {deletes}, into {made}")
