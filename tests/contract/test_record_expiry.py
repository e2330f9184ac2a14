"""Judge: rows that expire. Compactions of Apache Paimon and ours leave out the same rows and emit the same changes.

Both tables get the same rows under the same identifiers; times are a day after or long before their limit, so that the
clocks of both sides do not matter. Sequence numbers are not compared: which expired rows are still stored, and so the
largest number of a bucket, depends on the sizes of files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from freshet import Catalog, Table
from tests.contract.cases import canonical
from tests.kit.changelog_files import changelog
from tests.kit.engine_tables import arrow_rows
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.quick import some_now

pytestmark = pytest.mark.judge

LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.t.aggregate-function": "last_value"}
PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
FIRST = {"merge-engine": "first-row"}
EVERY_KIND = ("+I", "+I", "+U", "-D")
ADDS = ("+I", "+U")
"""Where deletes remove rows, values of the deleted one come back in Apache Paimon, and do not here."""
TABLES: Mapping[str, tuple[str, Mapping[str, str], tuple[str, ...]]] = {
    "deduplicate, INT": ("INT", {}, EVERY_KIND),
    "lookup, BIGINT": ("BIGINT", LOOKUP, EVERY_KIND),
    "full-compaction, TIMESTAMP": ("TIMESTAMP(6)", FULL, EVERY_KIND),
    "sum, full-compaction, milliseconds": ("BIGINT", {**SUM, **FULL}, EVERY_KIND),
    "sum, lookup, INT": ("INT", {**SUM, **LOOKUP}, EVERY_KIND),
    "partial-update, lookup": ("TIMESTAMP(3)", {**PARTIAL, **LOOKUP}, ADDS),
    "partial-update, TIMESTAMP_LTZ": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", PARTIAL, ADDS),
    "first-row, lookup": ("BIGINT", {**FIRST, **LOOKUP}, ("+I",)),
    "lookup, sequence.field": ("BIGINT", {**LOOKUP, "sequence.field": "v"}, EVERY_KIND),
    "input, no statistics": ("INT", {"changelog-producer": "input", "metadata.stats-mode": "none"}, EVERY_KIND),
    "full-compaction, small files": ("INT", {**FULL, "target-file-size": "1 kb", "num-levels": "3"}, EVERY_KIND),
}
DAY = 86_400


@pytest.mark.few(3)
@pytest.mark.parametrize("name", some_now(TABLES))
def test_both_leave_out_the_same_rows(paimon: PaimonJudge, tmp_path: Path, name: str) -> None:
    kind, extra, kinds = TABLES[name]
    columns = {"k": "INT NOT NULL", "v": "INT", "t": kind}
    options = {"bucket": "1", "record-level.expire-time": "10 d", "record-level.time-field": "t", **extra}
    ours = Catalog(str(tmp_path)).create_table("db.ours", schema=columns, primary_keys=["k"], options=options)
    theirs = paimon.create_table(tmp_path / "theirs", columns, primary_keys=["k"], options=options)
    source, now = Random(name), int(time.time())
    for identifier in range(1, 7):
        rows = arrow_rows([_row(source, kinds, kind, now) for _ in range(source.randint(3, 12))], columns)
        full = options.get("changelog-producer") == "full-compaction" and identifier % 2 == 0
        with ours.writer("u") as writer:
            writer.write(rows)
            writer.commit(identifier)
        theirs.write(rows, user="u", identifier=identifier, compact="full" if full else None)
        assert canonical(ours.scan().to_arrow()) == canonical(theirs.read_arrow())
    assert _changes(Table.open(str(tmp_path / "theirs"))) == _changes(ours)
    ours.compact(full=True)
    theirs.compact(full=True)
    left = canonical(ours.scan().to_arrow())
    assert left == canonical(theirs.read_arrow())
    assert left == canonical(paimon.table(ours.location).read_arrow())
    assert "metadata.stats-mode" in extra or "first-row" in name or _is_live(ours, now)


def _row(source: Random, kinds: tuple[str, ...], kind: str, now: int) -> dict[str, Any]:
    seconds = source.choice((now - 9 * DAY, now - 11 * DAY, now - 1000 * DAY, None, now + DAY))
    value: Any = seconds
    if seconds is not None and kind.startswith("TIMESTAMP"):
        value = datetime.fromtimestamp(seconds, UTC)
        value = value if "LOCAL" in kind else value.replace(tzinfo=None)
    elif seconds is not None and kind == "BIGINT" and source.random() < 0.5:
        value = seconds * 1000
    return {
        "k": source.randrange(8),
        "v": source.choice((None, 1, 2)),
        "t": value,
        "_ROW_KIND": source.choice(kinds),
    }


def _changes(table: Table) -> dict[tuple[int, str], list[str]]:
    changes = changelog(table)
    return {
        (snapshot.commit_identifier, str(snapshot.commit_kind)): sorted(map(str, changes[snapshot.id]))
        for snapshot in table.snapshots()
        if snapshot.id in changes
    }


def _is_live(table: Table, now: int) -> bool:
    """Whether no row is left that is too old, after a full compaction."""
    for value in table.scan().to_arrow().column("t").to_pylist():
        if isinstance(value, datetime):
            value = value.replace(tzinfo=UTC).timestamp()
        if value is not None and (value // 1000 if value >= 10**12 else value) < now - 10 * DAY:
            return False
    return True
