"""Options that say what rows are there do not make others of them: refused, or changed once that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from freshet import AddColumn, Catalog, RenameColumn, ResetOption, SetOption
from freshet.storage.exceptions import ConflictError, InvalidRequestError
from freshet.storage.maintenance import vector_switch
from freshet.storage.options.declaration import reinterprets
from freshet.storage.table import Table
from tests.kit.quick import some_now

SCHEMA: Final = {"id": "INT NOT NULL", "a": "INT", "b": "INT", "p": "STRING"}
ROWS: Final = [{"id": 1, "a": 1, "b": 9, "p": "x"}, {"id": 1, "a": 2, "b": 3, "p": "y"}]
DELETED: Final = [ROWS[0], {"id": 1, "a": 1, "b": 9, "p": "x", "_ROW_KIND": "-D"}]
AGG: Final = {"merge-engine": "aggregation"}

# options of the table, the option, its value (None resets it), the rows, a commit each
MERGING: Final[list[tuple[dict[str, str], str, str | None, list[dict[str, Any]]]]] = [
    ({}, "sequence.field", "b", ROWS),
    ({"sequence.field": "b"}, "sequence.field", None, ROWS),
    ({"sequence.field": "b"}, "sequence.field.sort-order", "descending", ROWS),
    ({"merge-engine": "partial-update"}, "fields.b.sequence-group", "a", ROWS),
    (AGG, "fields.a.aggregate-function", "sum", ROWS),
    (AGG, "fields.default-aggregate-function", "max", [{**row, "p": None} for row in ROWS]),
    ({**AGG, "fields.p.aggregate-function": "listagg"}, "fields.p.list-agg-delimiter", ";", ROWS),
    ({}, "ignore-delete", "true", DELETED),
    ({}, "deduplicate.ignore-delete", "true", DELETED),
]
VECTORS: Final = "deletion-vectors.enabled"
MODIFIABLE: Final = SetOption("deletion-vectors.modifiable", "true")


def make(folder: Path, options: dict[str, str], rows: Sequence[dict[str, Any]], keys: Sequence[str] = ("id",)) -> Table:
    given = {"bucket": "1" if keys else "-1", **options}
    table = Catalog(folder).create_table("db.t", schema=SCHEMA, primary_keys=keys, options=given)
    for row in rows:
        write(table, row)
    return table


def write(table: Table, *rows: dict[str, Any]) -> None:
    with table.writer("w") as writer:
        writer.write(list(rows))
        writer.commit()


def held(table: Table, **scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(**scan).to_arrow().to_pylist())


@pytest.mark.parametrize(("options", "key", "value", "rows"), some_now(MERGING))
def test_merging_changes_once_each_key_has_one_row(
    tmp_path: Path, options: dict[str, str], key: str, value: str | None, rows: list[dict[str, Any]]
) -> None:
    table = make(tmp_path, options, rows)
    change = ResetOption(key) if value is None else SetOption(key, value)
    before = held(table)
    with pytest.raises(InvalidRequestError, match=rf"{key.removeprefix('deduplicate.')}.*Compact the table in full"):
        table.alter(change)
    if value is not None:
        with pytest.raises(InvalidRequestError, match=r"cannot be given when opening it"):
            table.with_options({key: value})
    assert held(table.alter(change, allow_lossy=True)) != before
    table.compact(full=True)
    assert reinterprets(key)
    make(tmp_path / "compacted", options, rows).compact(full=True)
    compacted = Catalog(tmp_path / "compacted").table("db.t")
    assert held(compacted.alter(change)) == before


@pytest.mark.parametrize(("key", "value"), [("partition.default-name", "none"), ("partition.legacy-name", "false")])
def test_what_names_folders_is_fixed(tmp_path: Path, key: str, value: str) -> None:
    table = Catalog(tmp_path).create_table("db.t", schema=SCHEMA, partition_keys=["p"], options={"bucket": "-1"})
    table.alter(SetOption(key, value)).alter(ResetOption(key))
    write(table, {"id": 1, "p": None})
    with pytest.raises(InvalidRequestError, match="files written already depend on it"):
        table.alter(SetOption(key, value))
    with pytest.raises(InvalidRequestError, match="cannot be given when opening it"):
        table.with_options({key: value})


def test_a_column_that_is_new_and_other_words_for_the_same_change_nothing(tmp_path: Path) -> None:
    table = make(tmp_path, AGG | {"fields.a.aggregate-function": "sum"}, ROWS)
    table = table.alter(AddColumn("n", "INT"), SetOption("fields.n.aggregate-function", "max"))
    table = table.alter(RenameColumn("a", "sum of a"), SetOption("sequence.field.sort-order", "ascending"))
    assert held(table.with_options({"ignore-delete": "false"})) == [(1, 3, 3, "y", None)]


def test_a_snapshot_of_another_merge_is_not_rolled_back_to(tmp_path: Path) -> None:
    table = make(tmp_path, AGG, ROWS)
    table.compact(full=True)
    table = table.alter(SetOption("fields.a.aggregate-function", "sum"))
    write(table, {"id": 1, "a": 5})
    with pytest.raises(InvalidRequestError, match=r"snapshot 2: option fields.a.aggregate-function has changed"):
        table.rollback(2)
    assert held(table, snapshot_id=2) == [(1, 2, 3, "y")]
    table.rollback(3)
    assert held(table) == [(1, 2, 3, "y")]


# --- deletion vectors ---

KINDS: Final[dict[str, tuple[dict[str, str], Sequence[str]]]] = {
    "keyed": ({}, ("id",)),
    "partial-update": ({"merge-engine": "partial-update"}, ("id",)),
    "dynamic": ({"bucket": "-1"}, ("id",)),
    "append": ({}, ()),
}


@pytest.mark.parametrize(("kind", "to"), some_now([(kind, to) for kind in KINDS for to in ("true", "false")], 3))
def test_vectors_are_turned_on_and_off(tmp_path: Path, kind: str, to: str) -> None:
    options, keys = KINDS[kind]
    table = make(tmp_path, {**options, VECTORS: "false" if to == "true" else "true"}, ROWS, keys)
    write(table, {"id": 2, "a": 5}, {"id": 3, "a": 6})
    table.update({"a": 7}, "id = 2")
    if kind != "partial-update":
        table.delete("id = 3")
    before = held(table)
    with pytest.raises(InvalidRequestError, match=r"fixed once there are snapshots.*deletion-vectors.modifiable"):
        table.alter(SetOption(VECTORS, to), allow_lossy=True)
    with pytest.raises(InvalidRequestError, match="cannot be given when opening it"):
        table.with_options({VECTORS: to})
    changed = table.alter(MODIFIABLE, SetOption(VECTORS, to))
    assert held(changed) == before
    write(changed, {"id": 2, "a": 8}, {"id": 4, "a": 9})
    assert {row[:2] for row in held(changed)} >= {(2, 8), (4, 9)}
    back = changed.alter(ResetOption(VECTORS)) if to == "true" else changed.alter(SetOption(VECTORS, "true"))
    assert held(back) == held(changed)
    assert not back.check().damage


@pytest.mark.parametrize(("options", "key", "value", "rows"), some_now([*MERGING, ({}, VECTORS, "true", ROWS)]))
def test_a_writer_from_before_is_refused(
    tmp_path: Path, options: dict[str, str], key: str, value: str | None, rows: list[dict[str, Any]]
) -> None:
    """It would merge its rows and compact as the table did before."""
    table = make(tmp_path, {**options, "num-sorted-run.compaction-trigger": "2"}, rows)
    table.compact(full=True)
    with table.writer("old") as writer:
        writer.write([rows[0]])
        changed = table.alter(MODIFIABLE, ResetOption(key) if value is None else SetOption(key, value))
        before = held(changed)
        with pytest.raises(ConflictError, match=rf"{key.removeprefix('deduplicate.')} was changed while the files"):
            writer.commit()
        writer.abort()
    assert held(changed) == before
    write(changed, rows[0])


def test_rows_committed_meanwhile_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, {}, ROWS)
    alter, commits = vector_switch.alter_table, iter((10, 11))

    def racing(*given: Any, **more: Any) -> Any:
        for number in commits:
            write(Catalog(tmp_path).table("db.t"), {"id": 1, "a": number})
            break
        return alter(*given, **more)

    monkeypatch.setattr(vector_switch, "alter_table", racing)
    changed = table.alter(MODIFIABLE, SetOption(VECTORS, "true"))
    assert held(changed) == [(1, 11, None, None)]


def test_an_empty_table_takes_either(tmp_path: Path) -> None:
    table = make(tmp_path, {}, [])
    table = table.alter(SetOption(VECTORS, "true"), SetOption("sequence.field", "b"))
    write(table, ROWS[0])
    write(table, ROWS[1])
    assert held(table) == [(1, 1, 9, "x")]
