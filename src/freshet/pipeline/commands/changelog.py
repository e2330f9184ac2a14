"""The command changelog: what commits changed, to the terminal or to a program, once or as it happens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table, time_given
from freshet.pipeline.commands.output import print_facts, since_text
from freshet.pipeline.commands.rows import (
    Columns,
    FilterText,
    Limit,
    RowFormat,
    check_output,
    column_names,
    rows_wanted,
    write_followed,
    write_rows,
)
from freshet.storage.changes.changelog import BetweenMode
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.display import rfc3339
from freshet.storage.table import Table


def changelog(
    warehouse: Warehouse,
    table: TableName,
    from_snapshot: Annotated[int | None, typer.Option(help="First snapshot; default: the oldest there is.")] = None,
    to_snapshot: Annotated[int | None, typer.Option(help="Last snapshot; default: the latest.")] = None,
    from_timestamp: Annotated[
        str | None,
        typer.Option(help="Only changes committed since then: 2026-03-01T12:00:00Z, or milliseconds since 1970."),
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="START END",
            help="What happened after one point up to another, each a tag, a snapshot id or a time such as "
            "2026-03-01T12:00:00Z. Between two tags of a table with a key: what differs.",
        ),
    ] = None,
    mode: Annotated[
        BetweenMode | None,
        typer.Option(
            help="With --between: what differs between the two states (diff), the rows as they were written (delta), "
            "or what the changelog producer wrote (changelog). Default: auto."
        ),
    ] = None,
    filter_text: FilterText = None,
    columns: Columns = None,
    limit: Limit = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is committed, until Ctrl-C.")] = False,
    max_wait_s: Annotated[
        float | None,
        typer.Option("--max-wait", min=0, help="With --follow: end after this many seconds without a new snapshot."),
    ] = None,
    consumer_id: Annotated[
        str | None, typer.Option("--consumer", help="With --follow: go on where the consumer of this name stopped.")
    ] = None,
    output: RowFormat = "table",
    catalog_option: CatalogOption = None,
) -> None:
    """Print what commits changed: rows with their kind (+I -U +U -D) and the snapshot that brought them.

    They have the columns that the table has at the start, also with --follow: for columns that are added later, call it
    again.
    """
    check_output(output)
    if not follow and (max_wait_s is not None or consumer_id is not None):
        raise InvalidRequestError("--max-wait and --consumer go with --follow")
    if follow and output == "table":
        raise InvalidRequestError("--follow prints each change at once: add --format json, csv or arrow")
    if follow and to_snapshot is not None:
        raise InvalidRequestError("--follow has no last snapshot; leave --to-snapshot out")
    opened = open_table(warehouse, table, catalog_option)
    if between is not None:
        if follow or not (from_snapshot is None and to_snapshot is None and from_timestamp is None):
            raise InvalidRequestError("--between says which changes; leave --from-…, --to-snapshot and --follow out")
        start, end = (_point(opened, text) for text in between)
        wanted = rows_wanted(output, limit)
        mode = mode or BetweenMode.AUTO
        found = opened.changes_between(start, end, column_names(columns), filter_text, mode=mode, limit=wanted)
        write_rows(found.schema, found.to_batches(), output, wanted)
        return
    if mode is not None:
        raise InvalidRequestError("--mode goes with --between START END")
    log = opened.changelog(
        column_names(columns),
        filter_text,
        from_snapshot=from_snapshot,
        to_snapshot=to_snapshot,
        from_timestamp=None if from_timestamp is None else time_given(from_timestamp, "--from-timestamp"),
        limit=(wanted := rows_wanted(output, limit)),
    )
    if not follow:
        write_rows(log.schema, log.to_batches(), output, wanted)
        return
    stream = opened.stream(
        column_names(columns),
        filter_text,
        from_snapshot=log.snapshot_ids.start,
        consumer_id=consumer_id,
        max_wait_s=max_wait_s,
        with_snapshot_id=True,
    )
    write_followed(stream, output, limit)


def consumers(
    warehouse: Warehouse,
    table: TableName,
    reset: Annotated[
        str | None, typer.Option(help="Let this consumer go on at the snapshot that --next names.")
    ] = None,
    next_id: Annotated[
        int | None, typer.Option("--next", help="With --reset: the snapshot that the consumer reads next.")
    ] = None,
    delete: Annotated[str | None, typer.Option(help="Forget this consumer: it holds back no expiry any more.")] = None,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """List the streaming readers that have a name, the snapshot each wants next and when it read on last; or reset or
    delete one."""
    opened = open_table(warehouse, table, catalog_option)
    if (reset is None) != (next_id is None):
        raise InvalidRequestError("--reset ID and --next SNAPSHOT go together")
    if reset is not None and next_id is not None:
        opened.reset_consumer(reset, next_id)
    if delete is not None and not opened.delete_consumer(delete):
        names = ", ".join(sorted(opened.consumers())) or "none"
        raise InvalidRequestError(f"there is no consumer {delete!r}; consumers are {names}")
    latest = opened.latest_snapshot()
    facts = [
        {
            "consumer": each.name,
            "next_snapshot": each.next_snapshot_id,
            "snapshots_behind": max(0, (latest.id if latest else 0) - each.next_snapshot_id + 1),
            "moved_at": rfc3339(each.moved_ms) if as_json else since_text(each.moved_ms),
        }
        for each in opened.engine.consumers()
    ]
    titles = {"next_snapshot": "next snapshot", "snapshots_behind": "behind", "moved_at": "read on"}
    print_facts(facts, as_json=as_json, header={"consumer": "consumer", **titles})


def _point(table: Table, text: str) -> int | str | datetime:
    """A point of the history as it is typed: a tag of that name, else a snapshot id, else a moment."""
    if text in {tag.name for tag in table.tags.list()}:
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text  # a tag that is not there: the error names those that are
    if moment.tzinfo is None:
        raise InvalidRequestError(
            f"--between {text}: there is no tag of this name, and as a time it says no zone; add Z for UTC, or +01:00"
        )
    return moment
