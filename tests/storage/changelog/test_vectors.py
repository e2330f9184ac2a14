"""The changelog vectors of MERGING.md §9, as a user makes them: commits in, changes of each snapshot out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.row_kind import KIND_TEXTS
from freshet.storage.model.snapshot import CommitKind
from tests.kit.changelog_files import changelog, file_changes, texts_of
from tests.storage.compact.test_lookup_compaction import KEY, bucket

INPUT = {"changelog-producer": "input"}
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1000"}


def create(folder: Path, columns: dict[str, str], options: dict[str, str], keys: Sequence[str] = ("k",)) -> Table:
    return Catalog(str(folder)).create_table(
        "db.t", schema=columns, primary_keys=list(keys), options={"bucket": "1", **options}
    )


def rows(table: Table, *changes: Any) -> pa.Table:
    """Changes as tuples of values, the kind first where it is not +I."""
    names = table.schema.column_names
    kinds = [change[0] if len(change) > len(names) else "+I" for change in changes]
    columns = list(zip(*(change[-len(names) :] for change in changes), strict=True))
    return pa.table({**dict(zip(names, columns, strict=True)), "_ROW_KIND": kinds})


def commit(table: Table, *changes: Any, full: bool = False) -> list[str]:
    """One commit; what its changelog says."""
    before = {snapshot.id for snapshot in table.snapshots()}
    with table.writer("u") as writer:
        writer.write(rows(table, *changes))
        if full:
            writer.compact(full=True)
        writer.commit()
    return [text for number, changes in changelog(table).items() if number not in before for text in texts_of(changes)]


def test_vector_10_input(tmp_path: Path) -> None:
    table = create(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, INPUT)
    found = commit(
        table,
        (10, 100),
        (20, 200),
        ("-D", 10, 100),
        (10, 101),
        ("-U", 20, 200),
        ("+U", 20, 201),
        ("-U", 10, 101),
        ("+U", 10, 102),
    )
    assert found == [
        *("+I 10,100", "-D 10,100", "+I 10,101", "-U 10,101", "+U 10,102"),
        *("+I 20,200", "-U 20,200", "+U 20,201"),
    ]
    (snapshot,) = table.snapshots()
    assert snapshot.commit_kind is CommitKind.APPEND
    assert snapshot.changelog_record_count == 8
    assert [change.number for change in changelog(table)[1]] == [0, 2, 3, 6, 7, 1, 4, 5]
    assert table.scan().to_arrow().to_pylist() == [{"k": 10, "v": 102}, {"k": 20, "v": 201}]


@pytest.mark.parametrize("deduplicates", [False, True], ids=["", "row-deduplicate"])
@pytest.mark.parametrize(
    ("number", "stored", "expected", "left"),
    [
        (51, "0: 1", "+I 1", "1"),
        (52, "0: -D 1", "", ""),
        (53, "5: 3", "", "3"),
        (54, "0: 3 | 0: -3", "+I -3", "-3"),
        (55, "0: 3 | 0: -D 3", "", ""),
        (56, "5: 3 | 0: -3", "-U 3 +U -3", "-3"),
        ("57 -D", "5: 3 | 0: -D 3", "-D 3", ""),
        ("57 -U", "5: 3 | 0: -U 7", "-D 3", ""),
        (58, "5: 3 | 0: 3", "-U 3 +U 3", "3"),
    ],
)
def test_vectors_51_to_58_full_compaction(
    tmp_path: Path, number: object, stored: str, expected: str, left: str, deduplicates: bool
) -> None:
    flag = {"changelog_producer__row_deduplicate": "true"} if deduplicates else {}
    changes, data = compacted(tmp_path, {"changelog_producer": "full-compaction", **flag}, stored, 5)
    assert " ".join(data) == left
    assert " ".join(changes) == ("" if deduplicates and number == 58 else expected)


DEDUPLICATE: dict[str, str] = {}
SUM = {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"}
LAST_VALUE = {"merge_engine": "aggregation", "sequence__field": "v"}


@pytest.mark.parametrize("deduplicates", [False, True], ids=["", "row-deduplicate"])
@pytest.mark.parametrize(
    ("number", "options", "stored", "output", "expected", "left"),
    [
        (60, DEDUPLICATE, "2: 1 | 1: 2", 2, "", "2"),
        (61, DEDUPLICATE, "1: 1 | 0: 2", 1, "-U 1 +U 2", "2"),
        (62, DEDUPLICATE, "0: +U 2", 1, "+I 2", "+U 2"),
        (63, DEDUPLICATE, "2: 1 | 0: 2", 1, "-U 1 +U 2", "2"),
        (64, DEDUPLICATE, "2: -D 1 | 0: 2", 1, "+I 2", "2"),
        ("65 miss", DEDUPLICATE, "0: -U 2", 1, "", "-U 2"),
        ("65 hit", DEDUPLICATE, "2: -D 1 | 0: -D 2", 1, "", "-D 2"),
        ("65 row", DEDUPLICATE, "2: 1 | 0: -D 2", 1, "-D 1", "-D 2"),
        ("66 input", DEDUPLICATE, "2: 2 | 0: 2", 2, "-U 2 +U 2", "2"),
        ("66 hit", DEDUPLICATE, "3: 2 | 0: 2", 2, "-U 2 +U 2", "2"),
        (68, SUM, "3: 1 | 2: 1 | 1: 2 | 0: 2", 3, "-U 2 +U 4", "4"),
        ("68 lookup", SUM, "3: 1 | 2: 1 | 1: 2 | 0: 2", 1, "-U 2 +U 4", "4"),
        ("43", SUM, "0: -D 5", 1, "+I -5", "-5"),
        ("69 late", LAST_VALUE, "2: 3 | 0: 2", 1, "-U 3 +U 3", "3"),
        ("69 both", LAST_VALUE, "2: 2 | 0: 1 | 0: 3", 1, "-U 2 +U 3", "3"),
    ],
)
def test_vectors_60_to_69_lookup(
    tmp_path: Path,
    number: object,
    options: dict[str, str],
    stored: str,
    output: int,
    expected: str,
    left: str,
    deduplicates: bool,
) -> None:
    flag = {"changelog_producer__row_deduplicate": "true"} if deduplicates else {}
    changes, data = compacted(tmp_path, {"changelog_producer": "lookup", **flag, **options}, stored, output)
    assert " ".join(data) == left, number
    is_same = number in ("66 input", "66 hit", "69 late")
    assert " ".join(changes) == ("" if deduplicates and is_same else expected), number


def compacted(folder: Path, options: dict[str, str], stored: str, output: int) -> tuple[list[str], list[str]]:
    """Changes and rows of one key after a compaction; rows as `level: kind value`, oldest first."""
    at = bucket(folder, KEY, pa.field("v", pa.int64()), **options)
    for row in stored.split("|"):
        level, text = row.split(":")
        kind, value = text.split() if len(text.split()) == 2 else ("+I", text)
        at.table.place([{"k": 1, "v": int(value), "_ROW_KIND": kind}], level=int(level))
    for level in (2, 5):  # not to be the highest level, unless the vector says so
        if output < level and not any(row.strip().startswith(f"{level}:") for row in stored.split("|")):
            at.table.place([{"k": 99, "v": 0}], level=level)
    result = at.compact(output)
    changes = [c for f in result.changelog for c in file_changes(at.table.store, EMPTY_ROW, 0, f)]
    left = [r for r in at.rows(result.after) if r["k"] != 99]
    texts = [f"{KIND_TEXTS[row['_VALUE_KIND']]} {row['v']}".removeprefix("+I ") for row in left]
    if not result.after and not result.before:  # untouched
        texts = [str(row["v"]) for row in at.rows(at.levels.files) if row["k"] != 99]
    return [f"{change.kind} {change.values['v']}" for change in changes if change.values["k"] != 99], texts


def test_vector_59_full_compaction(tmp_path: Path) -> None:
    table = create(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, FULL)
    assert commit(table, (10, 110), (20, 120), full=True) == ["+I 10,110", "+I 20,120"]
    assert commit(table, (30, 130), (40, 140)) == []
    assert commit(table, ("-D", 40, 140), full=True) == ["+I 30,130"]
    assert commit(table, (20, 121), (30, 131)) == []
    changes = commit(table, ("-D", 20, 121), (30, 132), (40, 141), full=True)
    assert changes == ["-D 20,120", "-U 30,130", "+U 30,132", "+I 40,141"]
    kinds = [(snapshot.commit_kind, snapshot.changelog_record_count) for snapshot in table.snapshots()]
    append, compact = CommitKind.APPEND, CommitKind.COMPACT
    assert kinds == [
        *((append, None), (compact, 2), (append, None), (append, None), (compact, 1)),
        *((append, None), (append, None), (compact, 4)),
    ]


def test_vector_67_row_deduplicate_that_ignores_fields(tmp_path: Path) -> None:
    options = {
        **LOOKUP,
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "f1",
        "sequence.field": "f1",
    }
    table = create(tmp_path, {"k": "INT NOT NULL", "f0": "INT", "f1": "INT"}, options)
    assert commit(table, (1, 1, 1)) == ["+I 1,1,1"]
    assert commit(table, (1, 1, 2)) == []
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "f0": 1, "f1": 2}]
    assert commit(table, (1, 2, 2)) == ["-U 1,1,2", "+U 1,2,2"]


def test_vector_27_partial_update_that_removes(tmp_path: Path) -> None:
    options = {**LOOKUP, "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = create(tmp_path, {"k": "INT NOT NULL", "a": "STRING", "b": "STRING"}, options)
    assert commit(table, (1, None, "apple")) == ["+I 1,N,apple"]
    assert commit(table, ("-D", 1, None, "apple")) == ["-D 1,N,apple"]
    assert commit(table, (1, None, "apache")) == ["+I 1,N,apache"]
    assert commit(table, (1, "A", None)) == ["-U 1,N,apache", "+U 1,A,apache"]


def test_vector_45_collect(tmp_path: Path) -> None:
    options = {
        **LOOKUP,
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "collect",
        "fields.n.aggregate-function": "last_value",
    }
    table = create(tmp_path, {"k": "INT NOT NULL", "v": "ARRAY<STRING>", "n": "INT"}, options)
    commit(table, (1, ["A", "B"], 1))
    changes = commit(table, ("-U", 1, ["A", "B"], 2), ("+U", 1, ["C", "D"], 3))
    assert changes == ["-U 1,['A', 'B'],1", "+U 1,['C', 'D'],3"]  # Apache Paimon: A, B, C, D
    changes = commit(table, ("-D", 1, ["C", "D"], 4))
    assert [text.rpartition(",")[0] for text in changes] == ["-U 1,['C', 'D']", "+U 1,[]"]


@pytest.mark.parametrize("options", [LOOKUP, {**FULL, "full-compaction.delta-commits": "1"}], ids=["lookup", "full"])
def test_vector_70_sums_in_any_order(tmp_path: Path, options: dict[str, str]) -> None:
    options = {
        **options,
        "merge-engine": "aggregation",
        "sequence.field": "seq",
        "fields.total.aggregate-function": "sum",
        "num-sorted-run.compaction-trigger": "2",
    }
    table = create(tmp_path, {"k": "INT NOT NULL", "seq": "INT", "total": "INT"}, options)
    assert commit(table, (1, 7, 7)) == ["+I 1,7,7"]
    assert commit(table, (1, 8, 8)) == ["-U 1,7,7", "+U 1,8,15"]
    assert commit(table, (1, 6, 6)) == ["-U 1,8,15", "+U 1,8,21"]


def test_vector_71_first_row(tmp_path: Path) -> None:
    table = create(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, {**LOOKUP, "merge-engine": "first-row"})
    assert commit(table, (1, 1), (2, 2), (1, 3), (1, 4)) == ["+I 1,1", "+I 2,2"]
    assert commit(table, (1, 1), (2, 2), (1, 3), (3, 3), (4, 4)) == ["+I 3,3", "+I 4,4"]
    assert commit(table, (4, 9), (8, 8)) == ["+I 8,8"]


def test_vector_72_a_delete_that_is_dropped(tmp_path: Path) -> None:
    table = create(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, {**LOOKUP, "num-levels": "2"})
    commit(table, (1, 100), (2, 200))
    assert commit(table, ("-D", 1, None)) == ["-D 1,100"]
    assert table.snapshots()[-1].commit_kind is CommitKind.COMPACT
    assert table.snapshots()[-1].total_record_count == 1


def test_vector_73_a_lookup_without_a_changelog(tmp_path: Path) -> None:
    table = create(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, {"force-lookup": "true"})
    assert commit(table, (1, 50)) == commit(table, (1, 100)) == []
    assert len(table.snapshots()) == 4
