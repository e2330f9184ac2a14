"""Judge: Apache Paimon reads our changelog as we wrote it, and emits the same changes for the same commits, row by row.

Both get the same rows under the same identifiers. Of each commit the changelog must be the same set of rows, kinds and
sequence numbers, in the snapshot of the same kind; the files that hold it have the same source, counts and first key,
and the same level unless that was chosen by the sizes of data files, which are not the same for two writers.
Paimon's streaming scan of our table and its system table `$audit_log` give what our own reader gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from freshet import Catalog, Table
from freshet.storage.metadata.live_files import changelog_entries
from tests.kit.changelog_files import Change, changelog
from tests.kit.engine_tables import arrow_rows
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN
from tests.kit.quick import some_now

pytestmark = pytest.mark.judge

COLUMNS = {"k": "INT NOT NULL", "v": "INT", "s": "INT", "d": "DOUBLE", "a": "ARRAY<INT>"}
PARTITIONED = {"p": "STRING NOT NULL", **COLUMNS}
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"}
ONCE = {"changelog-producer.row-deduplicate": "true"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
GROUPS = {"merge-engine": "partial-update", "fields.s.sequence-group": "v,d"}
EVERY_KIND = ("+I", "+I", "+U", "-U", "-D")
ADDS = ("+I", "+U")
"""What follows a retract Freshet keeps apart from it in these tables, and Paimon does not."""
TABLES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "input": ({"changelog-producer": "input", "sequence.field": "s"}, EVERY_KIND),
    "lookup": (LOOKUP, EVERY_KIND),
    "lookup, partitions": ({**LOOKUP, "bucket": "2"}, EVERY_KIND),
    "lookup, row-deduplicate": ({**LOOKUP, **ONCE}, EVERY_KIND),
    "lookup, row-deduplicate, sequence.field": ({**LOOKUP, **ONCE, "sequence.field": "s"}, EVERY_KIND),
    "lookup, sum": ({**LOOKUP, **SUM}, ADDS),
    "lookup, groups": ({**LOOKUP, **ONCE, **GROUPS}, ADDS),
    "lookup, first-row": ({**LOOKUP, "merge-engine": "first-row"}, ("+I",)),
    "lookup, few levels": ({**LOOKUP, "num-levels": "2"}, EVERY_KIND),
    "lookup, deletion vectors": ({**LOOKUP, "deletion-vectors.enabled": "true"}, EVERY_KIND),
    "full-compaction": (FULL, EVERY_KIND),
    "full-compaction, row-deduplicate": ({**FULL, **ONCE, "sequence.field": "s"}, EVERY_KIND),
    "full-compaction, sum": ({**FULL, **SUM}, ADDS),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", some_now(TABLES))
def test_both_tell_the_same(paimon: PaimonJudge, tmp_path: Path, name: str) -> None:
    options, kinds = TABLES[name]
    options = {"bucket": "1", **options}
    columns = PARTITIONED if "partitions" in name else COLUMNS
    partitions = ["p"] if "partitions" in name else []
    ours = Catalog(str(tmp_path)).create_table(
        "db.ours", schema=columns, primary_keys=[*partitions, "k"], partition_keys=partitions, options=options
    )
    theirs = paimon.create_table(
        tmp_path / "theirs", columns, primary_keys=[*partitions, "k"], partition_keys=partitions, options=options
    )
    source = Random(name)
    for identifier in range(1, 7):
        rows = arrow_rows([_row(source, kinds) for _ in range(source.randint(3, 12))], columns)
        with ours.writer("u") as writer:
            writer.write(rows)
            writer.commit(identifier)
        full = options["changelog-producer"] == "full-compaction" and identifier % 2 == 0
        theirs.write(rows, user="u", identifier=identifier, compact="full" if full else None)
    mine, others = _told(ours), _told(Table.open(str(tmp_path / "theirs")))
    assert others == mine
    assert mine
    judge, emitted = paimon.table(ours.location), ours.changelog().to_arrow()
    assert _texts(judge.changelog()) == _texts(emitted)
    assert _texts(judge.audit_log()) == _texts(emitted), "$audit_log, followed"
    for first, last in ((0, 3), (3, ours.snapshots()[-1].id)):
        read = ours.changelog(from_snapshot=first + 1, to_snapshot=last).to_arrow()
        assert _unnumbered(judge.audit_log_between(first, last)) == _unnumbered(read), "$audit_log, read"


def _row(source: Random, kinds: tuple[str, ...]) -> dict[str, Any]:
    return {
        "p": source.choice(("x", "y")),
        "k": source.randrange(6),
        "v": source.choice((None, 1, 2)),
        "s": source.choice((1, 2, 3)),
        "d": source.choice((0.0, -0.0, float("nan"), None)),
        "a": source.choice((None, [], [1, 2], [None])),
        "_ROW_KIND": source.choice(kinds),
    }


def _told(table: Table) -> dict[tuple[int, str], Any]:
    """By identifier and kind of snapshot: the changes, and what the manifests say of their files."""
    changes = changelog(table)
    found = {}
    for snapshot in table.snapshots():
        if snapshot.id not in changes:
            continue
        files = [entry.file for entry in changelog_entries(table.store.manifests, snapshot)]
        is_chosen_by_size = table.options.changelog_producer == "lookup" and table.options.num_levels > 2
        levels = {file.level for file in files} if not is_chosen_by_size else set()
        facts = sorted((f.file_source, f.row_count, f.delete_row_count, f.min_key) for f in files)
        rows = sorted(map(_text, changes[snapshot.id]))
        found[snapshot.commit_identifier, str(snapshot.commit_kind)] = (rows, facts, levels)
    return found


def _text(change: Change) -> str:
    return f"{change.number} {change}"


def _unnumbered(rows: Any) -> list[str]:
    names = sorted(name for name in rows.column_names if not name.startswith("_"))
    return sorted(repr(tuple(row.values())) for row in rows.select([ROW_KIND_COLUMN, *names]).to_pylist())


def _texts(rows: Any) -> list[str]:
    names = sorted(name for name in rows.column_names if not name.startswith("_"))
    chosen = rows.select([SNAPSHOT_ID_COLUMN, ROW_KIND_COLUMN, *names]).to_pylist()
    return sorted(repr(tuple(row.values())) for row in chosen)
