"""Tables that publish their changes, and what consumers have read of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from freshet.logstore.protocol.control import control_topic, decode_control
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import lines, make_logged

SNAPSHOT_ID = "_SNAPSHOT_ID"


class Crash(Exception):
    """The process is gone."""


@contextmanager
def dying_at(log: FakeLog, step: str, error: type[BaseException] = Crash) -> Iterator[None]:
    """What runs within ends with this error, once a transaction reaches the step."""

    def reach(reached: str) -> None:
        if reached == step:
            raise error(reached)

    log.reach = reach
    with pytest.raises(error):
        yield
    log.reach = lambda reached: None


def make(folder: Path, **options: str) -> Table:
    return make_logged(folder, log__consistency="transactional", **{"log__format": "debezium-json", **options})


def make_append(folder: Path, **options: str) -> Table:
    return make_logged(folder, keyed=False, log__consistency="transactional", **options)


def changes(log: FakeLog, topic: str = "t") -> list[str]:
    """What a consumer of debezium-json with isolation.level=read_committed has read, by Kafka partition."""
    return [
        " | ".join(change for each in records for change in change_lines(each.value)) for records in log.seen(topic)
    ]


def change_lines(value: bytes) -> Iterator[str]:
    source = json.loads(value)
    before, after = (
        None if source[side] is None else f"{source[side]['k']} {source[side]['v'] or 'null'}"
        for side in ("before", "after")
    )
    match source["op"]:
        case "c":
            yield f"+I {after}"
        case "u":
            yield f"-U {before}"
            yield f"+U {after}"
        case "d":
            yield f"-D {before}"


def changelog(table: Table) -> str:
    """What the changelog files of the table have, from the first snapshot on."""
    return " | ".join(lines(table.changelog(from_snapshot=1).to_arrow().drop_columns([SNAPSHOT_ID])))


def published(log: FakeLog) -> list[int]:
    """The snapshots that the control topic names."""
    [records] = log.seen(control_topic("t").topic)
    found = [decode_control(each.header, each.value) for each in records]
    return [each.snapshot_id for each in found if each is not None]


def changelog_by_bucket(table: Table) -> list[str]:
    """The changelog of the table by bucket."""
    log = table.changelog(from_snapshot=1)
    found: list[list[str]] = [[] for _ in range(table.options.bucket)]
    for split in log.plan():
        found[split.bucket] += [
            line for batch in log.read_split(split) for line in lines(batch.drop_columns([SNAPSHOT_ID]))
        ]
    return [" | ".join(parts) for parts in found]
