"""Values that a change did not carry, looked up per sequence group: which state counts, and what is never looked up."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.pipeline.decode.outcomes import COLUMN, KAFKA_PARTITION, REASON, old_key_text
from freshet.pipeline.query.task.unavailable_values import MOVED, NOT_STORED, UnavailableValues
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.table import Table
from tests.kit.cache_roots import files_of_cache
from tests.pipeline.query.outcome_rows import data, outcome_table
from tests.storage.lookup.lookup_tables import eager

COLUMNS = {"k": "BIGINT", "a": "STRING", "s": "BIGINT", "b": "STRING", "t": "BIGINT"}
OPTIONS = {
    "bucket": "1",
    "merge-engine": "partial-update",
    "fields.s.sequence-group": "a",
    "fields.t.sequence-group": "b",
}
ADD, DELETE = 0, 3


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """k, a ordered by s, b ordered by t; two rows are stored."""
    table = Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS, primary_keys=["k"], options=OPTIONS)
    stored = [{"k": 1, "a": "a1", "s": 10, "b": None, "t": None}, {"k": 2, "a": None, "s": None, "b": "b2", "t": 10}]
    with table.writer("loader") as writer:
        writer.write(pa.Table.from_pylist(stored, schema=table.arrow_schema))
        writer.commit(1)
    return table


def _filled(
    table: Table, *rows: tuple[int, tuple[object, ...], str]
) -> tuple[list[tuple[object, ...]], list[str], int]:
    """What becomes of the rows: those that stay, the columns of the dead ones, and how many got values."""
    names = list(table.schema.column_names)
    values = UnavailableValues(table, table.store.snapshots.latest().id, names)
    outcomes = [
        data(number, *row, kind=kind, unavailable=",".join(_part(names, name) for name in lacking.split()) or None)
        for number, (kind, row, lacking) in enumerate(rows)
    ]
    if "n" in names:
        outcomes = [each | {KAFKA_PARTITION: each[f"_d{names.index('n')}"]} for each in outcomes]
    routed = outcome_table(table.schema, outcomes)
    values.watch(routed.to_batches())
    filled = values.fill(routed)
    kept = [tuple(row[f"_d{place}"] for place in range(len(names))) for row in filled.rows.to_pylist()]
    assert set(filled.dead.column(REASON).to_pylist()) <= {NOT_STORED, MOVED}
    return kept, filled.dead.column(COLUMN).to_pylist(), filled.count


def _part(names: list[str], text: str) -> str:
    return str(names.index(text)) if text in names else text


def test_from_the_table_and_from_the_batch(table: Table) -> None:
    rows = [
        (ADD, (1, None, 11, None, None), "a"),
        (ADD, (1, "newer", 12, None, None), ""),
        (ADD, (1, None, 13, None, None), "a"),
    ]
    kept, dead, count = _filled(table, *rows)
    assert [row[1] for row in kept] == ["a1", "newer", "newer"]
    assert (dead, count) == ([], 2)


def test_stored_values_come_through_stores_of_rows(tmp_path: Path) -> None:
    options = {"bucket": "1", "lookup.cache-dir": str(tmp_path / "cache")}
    table = Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS, primary_keys=["k"], options=options)
    with table.writer("loader") as writer:
        writer.write([{"k": k, "a": f"a{k}", "s": k, "b": None, "t": None} for k in range(100)])
        writer.commit(1)
    with eager():
        kept, dead, count = _filled(table, (ADD, (7, None, 1, None, None), "a"), (ADD, (100, None, 1, None, None), "a"))
    assert [row[:2] for row in kept] == [(7, "a7")]
    assert (dead, count) == (["a"], 1)
    assert files_of_cache(tmp_path / "cache")


def test_rows_of_other_streams_do_not_touch_the_state(table: Table) -> None:
    rows = [(ADD, (1, None, None, "b", 99), ""), (ADD, (1, None, 11, None, None), "a")]
    kept, dead, _ = _filled(table, *rows)
    assert [row[1] for row in kept] == [None, "a1"]
    assert dead == []


def test_a_late_row_is_left_alone_and_an_equal_one_is_filled(table: Table) -> None:
    rows = [(ADD, (1, None, 9, None, None), "a"), (ADD, (1, None, 10, None, None), "a")]
    kept, dead, count = _filled(table, *rows)
    assert [row[1] for row in kept] == [None, "a1"]
    assert (dead, count) == ([], 1)


def test_a_late_row_of_the_batch_is_no_state(table: Table) -> None:
    rows = [
        (ADD, (1, "late", 5, None, None), ""),
        (ADD, (1, None, 11, None, None), "a"),
        (DELETE, (1, None, 7, None, None), ""),
        (ADD, (1, None, 12, None, None), "a"),
    ]
    kept, dead, _ = _filled(table, *rows)
    assert [row[1] for row in kept] == ["late", "a1", None, "a1"]
    assert dead == []


def test_what_is_not_stored_in_the_group_is_dead(table: Table) -> None:
    rows = [
        (ADD, (2, None, 11, None, None), "a"),  # a row of the other stream alone is stored
        (ADD, (3, None, 11, None, None), "a"),  # nothing is stored
        (DELETE, (1, None, 11, None, None), ""),
        (ADD, (1, None, 12, None, None), "a"),  # deleted before
    ]
    kept, dead, count = _filled(table, *rows)
    assert [row[0] for row in kept] == [1]
    assert (dead, count) == (["a", "a", "a"], 0)


def test_a_deletion_of_one_stream_leaves_the_other_group(table: Table) -> None:
    rows = [(DELETE, (2, None, 11, None, None), ""), (ADD, (2, None, None, None, 11), "b")]
    kept, dead, count = _filled(table, *rows)
    assert [row[3] for row in kept] == [None, "b2"]
    assert (dead, count) == ([], 1)


def test_two_groups_of_one_row(table: Table) -> None:
    kept, dead, count = _filled(
        table,
        (ADD, (1, None, 11, "b", 1), "a"),
        (ADD, (1, "a", 12, None, 2), "b"),
        (ADD, (1, None, 12, None, 2), "a b"),
    )
    assert [(row[1], row[3]) for row in kept] == [("a1", "b"), ("a", "b"), ("a", "b")]
    assert (dead, count) == ([], 3)


SEQUENCED = {"k": "BIGINT", "doc": "STRING", "at": "BIGINT"}


def _sequenced(folder: Path, order: str) -> Table:
    """k, doc, ordered by `at`; NEW is stored at 10."""
    options = {"bucket": "1", "sequence.field": "at", "sequence.field.sort-order": order}
    table = Catalog(str(folder)).create_table("db.s", schema=SEQUENCED, primary_keys=["k"], options=options)
    with table.writer("loader") as writer:
        writer.write(pa.Table.from_pylist([{"k": 1, "doc": "NEW", "at": 10}], schema=table.arrow_schema))
        writer.commit(1)
    return table


def test_the_row_that_wins_by_the_sequence_field_gives_the_value(tmp_path: Path) -> None:
    table = _sequenced(tmp_path, "ascending")
    kept, dead, count = _filled(table, (ADD, (1, "OLD", 5), ""), (ADD, (1, None, 12), "doc"))
    assert [row[1] for row in kept] == ["OLD", "NEW"]
    assert (dead, count) == ([], 1)


def test_a_late_deletion_makes_no_dead_letter(tmp_path: Path) -> None:
    table = _sequenced(tmp_path, "ascending")
    kept, dead, _ = _filled(table, (DELETE, (1, None, 5), ""), (ADD, (1, None, 12), "doc"))
    assert [row[1] for row in kept] == [None, "NEW"]
    assert dead == []
    kept, dead, _ = _filled(table, (DELETE, (1, None, 11), ""), (ADD, (1, None, 12), "doc"))
    assert (len(kept), dead) == (1, ["doc"])


def test_a_descending_sequence_field_and_null_as_the_smallest(tmp_path: Path) -> None:
    table = _sequenced(tmp_path, "descending")
    rows = [(ADD, (1, "loses", 12), ""), (ADD, (1, "loses too", None), ""), (ADD, (1, None, 8), "doc")]
    kept, dead, _ = _filled(table, *rows)
    assert [row[1] for row in kept] == ["loses", "loses too", "NEW"]
    assert dead == []


def test_a_late_row_without_the_value_is_not_filled_and_not_dead(tmp_path: Path) -> None:
    kept, dead, count = _filled(_sequenced(tmp_path, "ascending"), (ADD, (1, None, 9), "doc"))
    assert (kept, dead, count) == ([(1, None, 9)], [], 0)


def test_only_the_files_of_the_keys_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value costs the files whose key range holds it, not the table."""
    options = {"bucket": "1", "write-only": "true"}
    table = Catalog(str(tmp_path)).create_table("db.w", schema=SEQUENCED, primary_keys=["k"], options=options)
    with table.writer("loader") as writer:
        for number in range(5):
            rows = [{"k": number * 100 + key, "doc": f"doc {number} {key}", "at": 1} for key in range(100)]
            writer.write(pa.Table.from_pylist(rows, schema=table.arrow_schema))
            writer.commit(number)
    opened: list[str] = []
    read = LocalFileIO.open_input

    def counting(self: LocalFileIO, path: str) -> object:
        opened.append(path)
        return read(self, path)

    monkeypatch.setattr(LocalFileIO, "open_input", counting)
    kept, dead, count = _filled(table, (ADD, (321, None, 2), "doc"))
    assert (kept, dead, count) == ([(321, "doc 3 21", 2)], [], 1)
    assert len({path for path in opened if "/data-" in path}) == 1


def test_rows_that_may_wait_unseen_are_not_asked(tmp_path: Path) -> None:
    """With bucket=-2 the row that has the value may wait: what a lookup finds may be older."""
    options = {**OPTIONS, "bucket": "-2"}
    table = Catalog(str(tmp_path)).create_table("db.w", schema=COLUMNS, primary_keys=["k"], options=options)
    names = list(table.schema.column_names)
    whole = outcome_table(table.schema, [data(0, 1, "a1", 10, None, None)])
    lacks = outcome_table(table.schema, [data(1, 1, None, 11, None, None, unavailable="1")])
    values = UnavailableValues(table, None, names)
    values.watch(whole.to_batches())
    assert values.fill(whole).rows.num_rows == 1
    with pytest.raises(InvalidRequestError, match="the value of a, and with bucket=-2 .* REPLICA IDENTITY FULL"):
        values.watch(lacks.to_batches())


# --- the row of the key before ----------------------------------------------------------------------------------------

KEYED = {"k": "BIGINT", "day": "DATE", "doc": "STRING", "n": "BIGINT"}
DAY = date(2024, 2, 29)


def _keyed(folder: Path, **options: str) -> Table:
    table = Catalog(str(folder)).create_table(
        "db.m", schema=KEYED, primary_keys=["k", "day"], options={"bucket": "1", **options}
    )
    with table.writer("loader") as writer:
        rows = [{"k": k, "day": DAY, "doc": f"stored {k}", "n": 0} for k in (1, 2, 3)]
        writer.write(pa.Table.from_pylist(rows, schema=table.arrow_schema))
        writer.commit(1)
    return table


def _was(table: Table, k: str) -> str:
    """What a row lacks whose key was this one."""
    values = {"k": int(k.lstrip("!")), "day": DAY}
    return "doc " + old_key_text(table.schema.fields[:2], values, is_first=k[0] == "!")


GONE = ""
HISTORIES: list[tuple[str, str, list[str | None]]] = [
    # The rows are an operation, a key, and what it has or was: "d1" · "c9<1" · "u1=new"; a "." before a row in another
    # Kafka partition. What they have in the end, "" for a dead letter. "<!": the first record of that key.
    ("deleted, then inserted", "d1 c9<1", [None, "stored 1"]),
    ("in another partition", ".d1 c9<1", [None, "stored 1"]),
    ("the deletion is behind it", "c9<1 .d1", ["stored 1", None]),
    ("changed before", "u1=new d1 c9<1", ["new", None, "new"]),
    ("made before", "c7=new d7 c9<7", ["new", None, "new"]),
    ("changed behind it", "c9<1 .u1=new .d1", [GONE, "new", None]),
    ("another row has the key then", ".d1 .c1=other c9<1", [None, "other", "stored 1"]),
    ("deleted twice in front of it", "d1 c1=new d1 c9<1", [None, "new", None, "new"]),
    ("deleted twice elsewhere", ".d1 .c1=new .d1 c9<1", [None, "new", None, GONE]),
    ("twice", "d1 c8<1 d8 c9<8", [None, "stored 1", None, "stored 1"]),
    ("swapped", "d1 c9<1 d2 c1<2 d9 c2<9", [None, "stored 1", None, "stored 2", None, "stored 1"]),
    ("sent again, its row is there", "c2<7", ["stored 2"]),
    ("no deletion in the task", "c9<1", [GONE]),
    ("no deletion in the task, and the key had no other record in front of it", "c9<!1", ["stored 1"]),
    ("the same of a key that is not stored", "c9<!7", [GONE]),
    ("a change in the task, and no deletion", "u1=new c9<1", ["new", GONE]),
    ("nothing was stored", "d7 c9<7", [None, GONE]),
    ("no key before", "d1 c9<", [None, GONE]),
]
KINDS = {"c": 0, "u": 2, "d": 3}


@pytest.mark.parametrize(("name", "history", "expected"), HISTORIES, ids=[name for name, *_ in HISTORIES])
def test_the_row_of_the_key_before_has_the_value(
    tmp_path: Path, name: str, history: str, expected: list[str | None]
) -> None:
    table = _keyed(tmp_path)
    rows = []
    for text in history.split():
        own = text.lstrip(".")
        lacking = "" if "<" not in own else _was(table, own[3:]) if own[3:] else "doc"
        doc = own[3:] if "=" in own else None
        rows.append((KINDS[own[0]], (int(own[1]), DAY, doc, int(text[0] == ".")), lacking))
    kept, dead, _ = _filled(table, *rows)
    assert [row[2] for row in kept] == [each for each in expected if each != GONE]
    assert dead == ["doc"] * expected.count(GONE)


def test_a_partial_update_takes_it_where_its_key_has_none(tmp_path: Path) -> None:
    options = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = _keyed(tmp_path, **options)
    rows = [
        (DELETE, (1, DAY, None, 1), ""),
        (ADD, (9, DAY, None, 1), _was(table, "1")),
        (ADD, (2, DAY, None, 1), _was(table, "1")),
    ]
    kept, dead, count = _filled(table, *rows)
    assert [row[2] for row in kept] == [None, "stored 1", None]
    assert (dead, count) == ([], 1)
