"""Dead letters by cause, with a few of each: of a table that holds them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.query.driver.dead_letters import DEAD_LETTER_COLUMNS
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import Table

_COLUMNS: Final = {
    name: text.removesuffix(" NOT NULL") for name, text in DEAD_LETTER_COLUMNS.items() if name != "micro_batch_id"
}
VALUE_MAX: Final = 160
"""Bytes of a record's value that are shown."""
LETTERS_MAX: Final = 100_000
"""Dead letters of a table that a report counts by cause."""
CAUSES_MAX: Final = 50
SAMPLES: Final = 3
"""Dead letters of a cause that a report shows, the last ones."""
_RAW: Final = ("raw_key", "raw_value")


def holds_dead_letters(schema: TableSchema) -> bool:
    """Whether a table of this schema holds dead letters."""
    types = {each.name: str(each.type).removesuffix(" NOT NULL") for each in schema.fields}
    return _COLUMNS.items() <= types.items()


def dead_letter_rows(table: Table, *, raw: bool = True, limit: int | None = None) -> pa.Table:
    """Dead letters in the order of their record times. Values are cut, they may be megabytes; without `raw` neither
    keys nor values are read."""
    scan = table.scan(columns=[each for each in _COLUMNS if raw or each not in _RAW], limit=limit)
    batches = []
    for batch in scan.to_batches():
        if raw:
            index = batch.schema.get_field_index("raw_value")
            batch = batch.set_column(index, "raw_value", pc.binary_slice(batch.column(index), 0, VALUE_MAX + 1))
        batches.append(batch)
    return pa.Table.from_batches(batches, None if batches else scan.schema).sort_by("record_time")


def by_reason(rows: pa.Table) -> list[dict[str, Any]]:
    """How many there are by pipeline, column and reason, the most first."""
    counted = rows.group_by(["pipeline", "column_name", "reason"]).aggregate([([], "count_all")])
    facts = [
        {"count": row["count_all"], "pipeline": row["pipeline"], "column": row["column_name"], "reason": row["reason"]}
        for row in counted.to_pylist()
    ]
    return sorted(facts, key=lambda fact: (-fact["count"], fact["pipeline"], fact["reason"]))


def in_utc(at: datetime | None) -> datetime | None:
    """The time of a record with its zone."""
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)


def dead_letter_facts(table: Table, *, samples: bool) -> dict[str, Any]:
    """What a report says of a table of dead letters, for JSON; keys and values of records only with `samples`."""
    rows = dead_letter_rows(table, raw=samples, limit=LETTERS_MAX)
    causes = by_reason(rows)
    for cause in causes[:CAUSES_MAX]:
        column = rows["column_name"]
        is_column = pc.is_null(column) if cause["column"] is None else pc.equal(column, cause["column"])
        is_pipeline, is_reason = (
            pc.equal(rows["pipeline"], cause["pipeline"]),
            pc.equal(rows["reason"], cause["reason"]),
        )
        found = rows.filter(pc.and_(pc.and_(is_pipeline, is_reason), is_column))
        cause["last"] = _time_text(found["record_time"][-1].as_py())
        last = found.slice(max(0, len(found) - SAMPLES)) if samples else found.slice(0, 0)
        cause["samples"] = [_sample(row) for row in last.to_pylist()]
    return {
        "table": table.name,
        "count": len(rows),
        "is_all": len(rows) < LETTERS_MAX,
        "cause_count": len(causes),
        "causes": causes[:CAUSES_MAX],
    }


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "partition": row["kafka_partition"],
        "offset": row["log_offset"],
        "time": _time_text(row["record_time"]),
        "key": _text(row["raw_key"]),
        "value": _text(row["raw_value"]),
    }


def _time_text(at: datetime | None) -> str | None:
    given = in_utc(at)
    return None if given is None else given.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    return value[:VALUE_MAX].decode("utf-8", "replace") + ("…" if len(value) > VALUE_MAX else "")
