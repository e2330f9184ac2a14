"""The commands tags, tag and expire-tags: what the names of snapshots are, and how they are given and taken away."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from freshet.pipeline.commands.arguments import (
    HOURS_MAX,
    AsJson,
    AtTime,
    CatalogOption,
    TableName,
    Warehouse,
    open_table,
    time_ms,
)
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import print_facts, print_json, say
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.display import plural, rfc3339

_HEADER: Final = {
    "tag": "tag", "snapshot": "snapshot", "committed": "committed (UTC)", "records": "records",
    "created": "created", "retained_until": "retained until",
}  # fmt: skip


class TagAction(StrEnum):
    """What the command tag does."""

    CREATE = "create"
    REPLACE = "replace"
    RENAME = "rename"
    DELETE = "delete"


def tags(warehouse: Warehouse, table: TableName, catalog_option: CatalogOption = None, as_json: AsJson = False) -> None:
    """List the tags: names of snapshots, which do not expire while they have one.

    The times of creation and retention are those of the clock of the machine that made the tag; a tag without them
    stays until it is deleted.
    """
    facts = [_facts(each) for each in open_table(warehouse, table, catalog_option).tags.list()]
    if not as_json:
        for each in facts:
            each |= {key: each[key] and each[key][:19].replace("T", " ") for key in ("created", "retained_until")}
    print_facts(facts, as_json=as_json, header=_HEADER)


def tag(
    warehouse: Warehouse,
    table: TableName,
    action: Annotated[TagAction, typer.Argument(help="create, replace, rename or delete.")],
    name: Annotated[str, typer.Argument(help="Name of the tag.")],
    new_name: Annotated[str | None, typer.Argument(help="With rename: the new name.")] = None,
    snapshot_id: Annotated[
        int | None, typer.Option("--snapshot", help="Snapshot id, to create or replace; default: the latest.")
    ] = None,
    at: AtTime = None,
    retained_hours: Annotated[
        float | None,
        typer.Option(help="Whoever commits after so many hours removes the tag. Default: tag.default-time-retained."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With delete or replace: say which files would go; nothing is changed."),
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Create, replace, rename or delete a tag: a name that keeps a snapshot.

    A name that is taken is refused on create and as a new name; replace lets it name another snapshot. Deleting a tag
    whose snapshot has expired removes the files that nothing else names.
    """
    if (action is TagAction.RENAME) != (new_name is not None):
        raise InvalidRequestError("give a new name with rename, and with nothing else: freshet tag … rename OLD NEW")
    chooses = action in (TagAction.CREATE, TagAction.REPLACE)
    if not chooses and (snapshot_id is not None or at is not None or retained_hours is not None):
        raise InvalidRequestError(
            f"--snapshot, --timestamp and --retained-hours go with create and replace, not {action}"
        )
    if dry_run and action in (TagAction.CREATE, TagAction.RENAME):
        raise InvalidRequestError(f"--dry-run goes with delete and replace: {action} removes nothing")
    found = open_table(warehouse, table, catalog_option).tags
    timestamp_ms = None if at is None else time_ms(at, "--timestamp")
    retained = None if retained_hours is None else _retained(retained_hours)
    if action is TagAction.DELETE or dry_run:
        with working(f"deleting a tag of {table}"):
            gone = found.delete(name, dry_run=dry_run)
        _say_removal(gone, action, as_json=as_json)
        return
    if action is TagAction.RENAME:
        assert new_name is not None, "checked above"
        made = found.rename(name, new_name)
    elif action is TagAction.REPLACE:
        made = found.replace(name, snapshot_id, timestamp_ms=timestamp_ms, retained=retained)
    else:
        made = found.create(name, snapshot_id, timestamp_ms=timestamp_ms, retained=retained)
    if as_json:
        print_json(_facts(made))
        return
    until = "" if made.retained_until is None else f" until {_time(made.retained_until)}"
    said = (
        f"tag {name!r} is called {new_name!r} now, and names" if action is TagAction.RENAME else f"tag {name!r} names"
    )
    say(f"{said} snapshot {made.snapshot_id}{until}")


def _say_removal(gone: Any, action: TagAction, *, as_json: bool) -> None:
    files = {"data_files": gone.data_file_count, "metadata_files": gone.metadata_file_count}
    if as_json:
        print_json({"tag": gone.tag.name, "snapshot": gone.tag.snapshot_id, **files, "dry_run": gone.is_dry_run})
        return
    counts = f"{plural(gone.data_file_count, 'data file')} and {plural(gone.metadata_file_count, 'metadata file')}"
    if gone.is_dry_run:
        done = "deleted" if action is TagAction.DELETE else "replaced"
        say(f"tag {gone.tag.name!r} of snapshot {gone.tag.snapshot_id} would be {done}, and {counts} with it")
    else:
        say(f"tag {gone.tag.name!r} of snapshot {gone.tag.snapshot_id} deleted, and {counts} with it")


def _facts(each: Any) -> dict[str, Any]:
    return {
        "tag": each.name,
        "snapshot": each.snapshot_id,
        "committed": rfc3339(each.snapshot.time_ms),
        "records": each.row_count,
        "created": _local(each.created),
        "retained_until": _local(each.retained_until),
    }


def _local(at: datetime | None) -> str | None:
    """A time of the clock of the machine that made the tag, taken for the zone of this one: tags say none."""
    try:
        return None if at is None else at.astimezone().isoformat(timespec="seconds")
    except (OverflowError, ValueError):  # at the ends of the calendar
        return f"{at.isoformat(timespec='seconds')}Z" if at is not None else None


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _retained(hours: float) -> timedelta:
    if not 0 < hours <= HOURS_MAX:
        raise InvalidRequestError(f"--retained-hours {hours}: give more than 0, and up to {HOURS_MAX} hours")
    return timedelta(hours=hours)


def expire_tags(
    warehouse: Warehouse,
    table: TableName,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="All tags that were made before this time go, also those that stay until they are deleted: "
            "milliseconds since 1970, or a time such as 2026-03-01T12:00:00Z.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the tags that would go.")] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove the tags whose time to stay is over, with the files that only they name.

    Whoever commits does this now and then, unless tag.time-expire-enabled is false.
    """
    opened = open_table(warehouse, table, catalog_option)
    moment = None if older_than is None else time_ms(older_than, "--older-than")
    with working(f"expiring tags of {table}"):
        gone = opened.tags.expire(older_than=moment, dry_run=dry_run)
    if as_json:
        print_json(
            [
                {
                    "tag": each.tag.name,
                    "snapshot": each.tag.snapshot_id,
                    "data_files": each.data_file_count,
                    "metadata_files": each.metadata_file_count,
                    "dry_run": each.is_dry_run,
                }
                for each in gone
            ]
        )
        return
    for each in gone:
        counts = f"{plural(each.data_file_count, 'data file')}, {plural(each.metadata_file_count, 'metadata file')}"
        say(f"{each.tag.name} of snapshot {each.tag.snapshot_id}: {counts}")
    say(f"{plural(len(gone), 'tag')} {'would go; nothing was deleted' if dry_run else 'removed'}")
