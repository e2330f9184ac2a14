"""Merge on write: compaction marks the rows that newer ones replace, and readers never merge."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog, Table
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import CommitKind
from tests.kit.hypothesis_profile import examples

Row = dict[str, Any]
COLUMNS = {"k": "BIGINT NOT NULL", "v": "BIGINT", "s": "STRING"}
TYPES = {"k": pa.int64(), "v": pa.int64(), "s": pa.string(), "_ROW_KIND": pa.string()}
BASE = 2000
"""Rows of the first commit: enough that later ones stay below it."""


def create(folder: Path, **options: str) -> Table:
    return Catalog(str(folder)).create_table(
        "db.t",
        schema=COLUMNS,
        primary_keys=["k"],
        options={"bucket": "1", "deletion-vectors.enabled": "true", **options},
    )


def write(table: Table, rows: Sequence[Mapping[str, Any]], user: str = "u", identifier: int | None = None) -> None:
    with table.writer(user) as writer:
        writer.write(arrow(rows))
        writer.commit() if identifier is None else writer.commit(identifier)


def arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in TYPES.items()})


def row(k: int, v: int | None = 0, s: str | None = "", kind: str = "+I") -> Row:
    return {"k": k, "v": v, "s": s, "_ROW_KIND": kind}


def loaded(folder: Path, **options: str) -> Table:
    table = create(folder, **options)
    write(table, [row(k, 0, "base") for k in range(BASE)])
    return table


def read(table: Table, **request: Any) -> dict[int, tuple[Any, Any]]:
    rows = table.scan(**request).to_arrow().to_pylist()
    found = {each["k"]: (each["v"], each["s"]) for each in rows}
    assert len(found) == len(rows), "no key is there twice"
    assert table.scan(**request).count() == len(rows)
    return found


def marked(table: Table) -> int:
    return sum(table.engine.marked_rows().values())


def index_files(table: Table) -> list[str]:
    return sorted(path.name for path in (Path(table.location) / "index").glob("*"))


# ------------------------------------------------------------------------------------------------------- single steps


@pytest.mark.parametrize("wide", ["false", "true"])
def test_a_newer_row_marks_the_older_one_and_the_older_file_stays(tmp_path: Path, wide: str) -> None:
    table = loaded(tmp_path, **{"deletion-vectors.bitmap64": wide})
    before = {entry.file.file_name for entry in table.files()}
    write(table, [row(3, 1, "new"), row(BASE + 1, 1, "new")])
    assert before < {entry.file.file_name for entry in table.files()}
    assert all(entry.file.level > 0 for entry in table.files())
    assert list(table.engine.marked_rows()) == list(before)
    assert marked(table) == 1
    assert all(split.raw_convertible for split in table.scan().plan())
    found = read(table)
    assert len(found) == BASE + 1
    assert found[3] == (1, "new")
    write(table, [row(3, 2, "newer")])
    assert read(table)[3] == (2, "newer")
    assert len(read(table)) == BASE + 1
    name = next(iter(before))
    data = (Path(table.location) / "index" / index_files(table)[-1]).read_bytes()
    assert (b"\xd1\xd3\x39\x64" in data) == (wide == "true")
    assert name in table.engine.marked_rows()


def test_a_delete_leaves_a_mark_and_no_row(tmp_path: Path) -> None:
    table = loaded(tmp_path)
    write(table, [row(k, kind="-D") for k in (5, 7, BASE + 3)])
    assert marked(table) == 2
    assert sum(entry.file.row_count for entry in table.files()) == BASE
    assert read(table).keys() == set(range(BASE)) - {5, 7}
    write(table, [row(5, 9, "again")])
    assert read(table)[5] == (9, "again")
    assert marked(table) == 2, "a marked row is not marked again, and not found again"


def test_a_full_compaction_leaves_no_marks(tmp_path: Path) -> None:
    table = loaded(tmp_path)
    write(table, [row(k, 1, "x") for k in range(10)])
    before = read(table)
    table.compact(full=True)
    assert (marked(table), read(table)) == (0, before)
    write(table, [row(k, kind="-D") for k in range(10)])
    table.compact(full=True)
    assert marked(table) == 0, "files at the highest level are rewritten for their marks alone"
    assert read(table).keys() == set(range(10, BASE))


def test_level_0_of_write_only_writers_shows_when_it_is_compacted(tmp_path: Path) -> None:
    table = loaded(tmp_path)
    patient = table.with_options({"write-only": "true"})
    write(patient, [row(1, 1, "x")])
    assert read(table)[1] == (0, "base")
    assert read(table.with_options({"deletion-vectors.merge-on-read": "true"}))[1] == (1, "x")
    table.compact(full=False)
    assert read(table)[1] == (1, "x")
    assert marked(table) == 1


def test_older_snapshots_are_read_with_their_vectors(tmp_path: Path) -> None:
    """Vector 88 of the semantics: the APPEND has the state before, the COMPACT the state after."""
    table = create(tmp_path)
    write(table, [row(k, k) for k in (1, 2, 3, 4)])
    write(table, [row(k, 10 * k) for k in (2, 3)])
    write(table, [row(k, 100 * k) for k in (2, 4)])
    states = [
        {1: 1, 2: 2, 3: 3, 4: 4},
        {1: 1, 2: 20, 3: 30, 4: 4},
        {1: 1, 2: 200, 3: 30, 4: 400},
    ]
    kinds = [snapshot.commit_kind for snapshot in table.snapshots()]
    assert kinds == [CommitKind.APPEND, CommitKind.COMPACT] * 3
    for number, state in enumerate(states):
        assert {k: v for k, (v, _) in read(table, snapshot_id=2 * number + 2).items()} == state
    assert {k: v for k, (v, _) in read(table, snapshot_id=3).items()} == states[0]


def test_vector_90_sequence_fields(tmp_path: Path) -> None:
    table = create(tmp_path, **{"sequence.field": "v"})
    write(table, [row(1, 1, "a"), row(2, 1, "a")])
    write(table, [row(1, 2, "b"), row(2, 2, "b")])
    write(table, [row(1, 3, "c"), row(2, 1, "c")])
    assert read(table) == {1: (3, "c"), 2: (2, "b")}


def test_keys_are_found_past_marked_rows(tmp_path: Path) -> None:
    table = loaded(tmp_path)
    write(table, [row(3, 1, "new"), row(4, kind="-D")])
    found = find_stored_rows(table.store, table.store.snapshots.latest(), pa.table({"k": [2, 3, 4]}))
    assert found.by_key()["s"].to_pylist() == ["base", "new", None]


# ------------------------------------------------------------------------------------------------------------ histories


def expected(state: Mapping[int, tuple[Any, Any]], change: Row, engine: str) -> tuple[Any, Any] | None:
    """The row of a key after a change."""
    known = state.get(change["k"])
    v, s, is_delete = change["v"], change["s"], change["_ROW_KIND"] == "-D"
    match engine:
        case "sum":
            old = known[0] if known else None
            signed = None if v is None else (-v if is_delete else v)
            total = old if signed is None else signed if old is None else old + signed
            return total, (known[1] if known else None) if is_delete or s is None else s
        case "partial-update":
            return (v, s) if known is None else (known[0] if v is None else v, known[1] if s is None else s)
        case "sequence":
            if known is not None and known[0] is not None and (v is None or v < known[0]):
                return known
            return None if is_delete else (v, s)
    return None if is_delete else (v, s)


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "lookup": {"changelog-producer": "lookup"},
    "wide, few levels": {"deletion-vectors.bitmap64": "true", "num-levels": "3"},
    "small files": {"target-file-size": "1 kb", "changelog-producer": "lookup"},
    "partial-update": {"merge-engine": "partial-update"},
    "sum": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "last_non_null_value",
        "fields.s.ignore-retract": "true",
    },
}


@pytest.mark.few(2)
@pytest.mark.hypothesis
@pytest.mark.parametrize("engine", ENGINES)
def test_any_history_reads_as_the_oracle(engine: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen_marks = 0

    @settings(max_examples=examples(6))
    @given(
        steps=st.lists(st.sampled_from([1, 4, 40, "full", "minor"]), min_size=2, max_size=7), seed=st.integers(0, 99)
    )
    def run(steps: Sequence[int | str], seed: int) -> None:
        nonlocal seen_marks
        source = random.Random(seed)
        table = loaded(tmp_path_factory.mktemp("history"), **ENGINES[engine])
        state: dict[int, tuple[Any, Any]] = dict.fromkeys(range(BASE), (0, "base"))
        for number, step in enumerate(steps):
            if isinstance(step, str):
                table.compact(full=step == "full")
            else:
                rows = []
                for _ in range(step):
                    takes_deletes = engine != "partial-update" and engine != "sum"
                    kind = "-D" if takes_deletes and source.random() < 0.3 else "+I"
                    rows.append(row(source.randrange(60) * 35, source.randrange(100), f"{number}", kind))
                write(table, rows)
                for change in rows:
                    after = expected(state, change, engine)
                    if after is None:
                        state.pop(change["k"], None)
                    else:
                        state[change["k"]] = after
            assert read(table) == state
            seen_marks += marked(table)
            check_marks(table.store)

    run()
    assert seen_marks


def check_marks(store: TableStore) -> None:
    """Vectors name live files only, and each bucket has one index file at most."""
    snapshot = store.snapshots.latest()
    assert snapshot is not None
    live = {entry.file.file_name for entry in store.live.at(snapshot).entries()}
    for files in store.manifests.vector_files(snapshot.index_manifest).values():
        assert len(files) == 1
        assert {place.data_file_name for place in files[0].deletion_vectors or ()} <= live
