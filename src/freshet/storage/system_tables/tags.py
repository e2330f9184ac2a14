"""`$tags`: names of snapshots, by name, with what their files say beyond the snapshot: since when, and for how long.

| key of the file | column |
|---|---|
| tagCreateTime: `[year, month, day, hour, minute, second, nanos]`, zeros at the end left out; ISO text | create_time |
| tagTimeRetained: seconds, or ISO text | time_retained, as `PT24H` |

Source: MERGING.md §6.6; FORMAT.md §12.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from freshet.storage.codec.snapshot_json import decode_snapshot
from freshet.storage.exceptions import CorruptDataError, NotFoundError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.system_tables.definition import MetadataRows, SystemTableDefinition, columns_of, fields_of

FIELDS: Final = fields_of(
    tag_name="STRING NOT NULL",
    snapshot_id="BIGINT NOT NULL",
    schema_id="BIGINT NOT NULL",
    commit_time="TIMESTAMP(3) NOT NULL",
    record_count="BIGINT",
    create_time="TIMESTAMP(3)",
    time_retained="STRING",
)

_EPOCH: Final = datetime.datetime(1970, 1, 1)  # a wall clock has no zone


def _source(store: TableStore, _snapshot: Snapshot | None) -> MetadataRows:
    return MetadataRows(FIELDS, lambda: columns_of(FIELDS, _rows(store)))


def _rows(store: TableStore) -> list[tuple[Any, ...]]:
    rows = []
    for name in store.snapshots.tags.names():
        path = store.paths.tag(name)
        try:
            data = store.env.file_io.read_bytes(path)
        except NotFoundError:
            continue  # deleted while we looked
        snapshot = decode_snapshot(data, path)
        created_ms, retained = tag_times(data, path)
        time_ms = store.env.wall_clock_ms(snapshot.time_ms)
        rows.append((name, snapshot.id, snapshot.schema_id, time_ms, snapshot.total_record_count, created_ms, retained))
    return rows


def tag_times(data: bytes, path: str) -> tuple[int | None, str | None]:
    """Wall clock of the creation as milliseconds, and the time retained as ISO text; None where the tag has none."""
    content: Mapping[str, Any] = json.loads(data, parse_float=Decimal)
    created, retained = content.get("tagCreateTime"), content.get("tagTimeRetained")
    try:
        return (
            None if created is None else _milliseconds(created),
            None if retained is None else retained if isinstance(retained, str) else duration_text(Decimal(retained)),
        )
    except (TypeError, ValueError, InvalidOperation) as error:
        raise CorruptDataError(
            f"the tag has a time that cannot be read ({error}): tagCreateTime is {created!r}, tagTimeRetained is "
            f"{retained!r}; create it anew",
            path=path,
        ) from error


def _milliseconds(created: str | Sequence[int]) -> int:
    if isinstance(created, str):
        moment = datetime.datetime.fromisoformat(created)
    else:
        year, month, day, hour, minute, second, nanos = (*created, *[0] * 7)[:7]
        moment = datetime.datetime(year, month, day, hour, minute, second, nanos // 1000)
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


def duration_text(seconds: Decimal) -> str:
    """A duration as ISO 8601 has it, in hours, minutes and seconds: `PT36H30M`, `PT0.5S`, `PT0S`."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    rest = seconds - hours * 3600 - minutes * 60
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else ""]
    if rest or not any(parts):
        text = format(rest.normalize(), "f")
        parts.append(f"{text}S")
    return "PT" + "".join(parts)


TAGS: Final = SystemTableDefinition("tags", "its tags", _source, FIELDS)
