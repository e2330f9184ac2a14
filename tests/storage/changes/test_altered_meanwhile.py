"""A table is altered while a reader has it open: the reader goes on with its columns, or stops and says what to do."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from freshet import AddColumn, Catalog, ChangeType, DropColumn, RenameColumn, SetNullable, SetOption, Table
from freshet.storage.exceptions import ConflictError, InvalidRequestError
from freshet.storage.schema.change import SchemaChange

PRODUCERS = ("input", "lookup", "full-compaction")
KEYED = {"bucket": "1", "changelog-producer": "input", "continuous.discovery-interval": "1 ms"}


def made(folder: Path, **columns: str) -> Table:
    return Catalog(str(folder)).create_table(
        "db.t", schema={"id": "BIGINT", **columns}, primary_keys=["id"], options=KEYED
    )


def write(table: Table, **values: Any) -> None:
    with table.writer("w") as writer:
        writer.write([values])
        writer.commit()


def latest_id(table: Table) -> int:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return snapshot.id


@pytest.mark.parametrize(
    ("narrow", "wide", "fits", "beyond"),
    [
        ("INT", "BIGINT", 7, 2**40 + 1),
        ("VARCHAR(3)", "STRING", "abc", "abcd"),
        ("DECIMAL(4, 2)", "DECIMAL(10, 2)", Decimal("1.50"), Decimal("12345.67")),
        ("DECIMAL(4, 2)", "DECIMAL(10, 4)", Decimal("1.5000"), Decimal("1.2345")),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", datetime(2026, 11, 27, 8), datetime(2026, 11, 27, 8, 0, 0, 1)),
        ("INT", "STRING", "7", "seven"),
        ("INT", "DOUBLE", 7.0, 7.5),
        ("ARRAY<INT>", "ARRAY<BIGINT>", [7], [2**40 + 1]),
        ("ROW<x INT>", "ROW<x BIGINT>", {"x": 7}, {"x": 2**40 + 1}),
    ],
)
def test_values_that_the_type_of_the_reader_cannot_hold(
    tmp_path: Path, narrow: str, wide: str, fits: Any, beyond: Any
) -> None:
    """They wrapped around, were cut or NULL, without a word."""
    table = made(tmp_path, a=narrow)
    write(table, id=1, a=None)
    stream = table.stream(["id", "a"], max_wait_s=0)
    assert next(stream)["a"].to_pylist() == [None]
    wider = table.alter(ChangeType("a", wide), allow_lossy=True)
    write(wider, id=2, a=fits)
    was = next(stream)["a"].to_pylist()
    assert was == table.scan(filter="id = 2").to_arrow()["a"].to_pylist()
    write(wider, id=3, a=beyond)
    for read in (lambda: next(stream), lambda: table.scan().to_arrow()):
        with pytest.raises(
            InvalidRequestError, match=r"'a' is .* by now, and a value does not fit.* Open the table again"
        ):
            read()
    assert table.scan(["id"]).to_arrow().num_rows == 3
    again = Catalog(str(tmp_path)).table("db.t")
    assert again.scan(filter="id > 1").to_arrow().sort_by("id")["a"].to_pylist() == [fits, beyond]
    found = again.stream(["a"], from_snapshot=stream.next_snapshot_id, max_wait_s=0)
    assert [value for batch in found for value in batch["a"].to_pylist()] == [beyond]


def test_floats_are_rounded(tmp_path: Path) -> None:
    table = made(tmp_path, a="FLOAT")
    write(table.alter(ChangeType("a", "DOUBLE")), id=1, a=0.1)
    assert table.scan().to_arrow()["a"].to_pylist() == [pytest.approx(0.1)]


@pytest.mark.parametrize("change", [DropColumn("a"), SetNullable("a", nullable=True)])
def test_null_in_a_column_that_the_reader_knows_as_not_null(tmp_path: Path, change: SchemaChange) -> None:
    table = made(tmp_path, a="INT NOT NULL", b="INT")
    altered = table.alter(change, allow_lossy=True)
    write(altered, id=1, b=1)
    with pytest.raises(InvalidRequestError, match=r"'a' is INT NOT NULL in schema 0 .*Open the table again"):
        table.scan().to_arrow()
    assert table.scan(["b"]).to_arrow().num_rows == 1


def test_a_stream_keeps_its_columns_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path, a="INT", b="INT", c="INT")
    write(table, id=1, a=1, b=1, c=1)
    stream = table.stream(max_wait_s=0)
    next(stream)
    altered = table.alter(RenameColumn("a", "d"))
    write(altered, id=2, d=2, b=2, c=2)
    assert next(stream).to_pylist() == [{"id": 2, "a": 2, "b": 2, "c": 2, "_ROW_KIND": "+I"}]
    assert caplog.messages == []
    altered = altered.alter(DropColumn("b"), AddColumn("e", "INT"))
    for key in (3, 4):
        altered = altered.alter(SetOption("snapshot.num-retained.max", f"{99 + key}"))
        write(altered, id=key, d=key, c=key, e=key)
        assert next(stream).to_pylist() == [{"id": key, "a": key, "b": None, "c": key, "_ROW_KIND": "+I"}]
    (said,) = caplog.messages
    assert "db.t was altered (schema 3)" in said
    assert "column b dropped, NULL from here on; column e added, not read" in said


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_a_table_that_gets_no_changelog_any_more(tmp_path: Path, producer: str) -> None:
    """Its stream told nothing of what came then."""
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", producer))
    write(table, id=1, a=1)
    stream = table.stream(consumer_id="audit", max_wait_s=0)
    next(stream)
    write(table.alter(SetOption("changelog-producer", "none")), id=1, a=2)
    with pytest.raises(InvalidRequestError, match=r"changelog of table db.t has a gap: .*begin anew"):
        next(stream)
    table = Catalog(str(tmp_path)).table("db.t").alter(SetOption("changelog-producer", producer))
    write(table, id=1, a=3)
    with pytest.raises(InvalidRequestError, match=r"has a gap"):
        next(table.stream(consumer_id="audit", max_wait_s=0))
    table.delete_consumer("audit")
    told = [row["a"] for batch in table.stream(consumer_id="audit", max_wait_s=0) for row in batch.to_pylist()]
    assert told == [3]


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_of_a_table_that_had_none_for_a_while(tmp_path: Path, producer: str) -> None:
    """It gave what came before and after, as if that were all."""
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", producer))
    write(table, id=1, a=1)
    silent = table.alter(SetOption("changelog-producer", "none"))
    write(silent, id=1, a=2)
    write(silent, id=2, a=2)
    before = latest_id(silent)
    table = silent.alter(SetOption("changelog-producer", producer))
    for read in (
        lambda: table.changelog().to_arrow(),
        lambda: table.changelog().plan(),
        lambda: table.changes_between(0, before).to_arrow(),
    ):
        with pytest.raises(
            InvalidRequestError, match=rf"has a gap: snapshots .*{before} were .*snapshot {before + 1} on"
        ):
            read()
    write(table, id=2, a=3)
    table.compact(full=True)
    told = table.changelog(from_snapshot=before + 1).to_arrow()
    assert told["a"].to_pylist()[-1] == 3
    differs = table.changes_between(0, latest_id(table), mode="diff").to_arrow()
    assert sorted(differs.select(["id", "a"]).to_pylist(), key=str) == [{"id": 1, "a": 2}, {"id": 2, "a": 3}]
    assert [row["id"] for row in table.changes_between(0, before, mode="delta").to_arrow().to_pylist()] == [1, 1, 2]


@pytest.mark.parametrize(
    ("old", "new"),
    [(old, new) for old in PRODUCERS for new in PRODUCERS if old != new],
)
def test_another_producer_tells_nothing_twice_and_leaves_nothing_out(tmp_path: Path, old: str, new: str) -> None:
    """Rows of level 0 that `input` had told were told again by `lookup`, and those that a compaction had yet to tell
    were never told."""
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", old), SetOption("write-only", "true"))
    write(table, id=1, a=1)
    is_same = {old, new} == {"lookup", "full-compaction"}  # neither has told it yet
    if not is_same:
        with pytest.raises(InvalidRequestError, match=rf"1 file .*={old} .*{new} would .*freshet compact"):
            table.alter(SetOption("changelog-producer", new))
        assert Catalog(str(tmp_path)).table("db.t").schema.id == table.schema.id
        table.compact(full=True)
    table = table.alter(SetOption("changelog-producer", new))
    write(table, id=1, a=2)
    table.compact(full=True)
    told = table.changelog().to_arrow().to_pylist()
    sums = sum(row["a"] * (1 if row["_ROW_KIND"].startswith("+") else -1) for row in told)
    if new != "input":  # input tells the rows as they were given, an update as another insert
        assert sums == 2
    else:
        assert [row["a"] for row in told] == [1, 2]


@pytest.mark.parametrize(
    ("old", "new"),
    [(old, new) for old in ("none", *PRODUCERS) for new in ("none", *PRODUCERS) if old != new],
)
def test_another_producer_between_the_rows_and_their_commit(tmp_path: Path, old: str, new: str) -> None:
    """Rows written for `none` and committed at `input` were in no changelog; those for `input` were told twice."""
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", old))
    with table.writer("w") as writer:
        writer.write([{"id": 1, "a": 1}])
        altered = table.alter(SetOption("changelog-producer", new))
        is_other = new != "none" and "input" in (old, new)
        if is_other:
            with pytest.raises(ConflictError, match=f"from {old} to {new} while .*write them again"):
                writer.commit()
            writer.abort()
            assert altered.latest_snapshot() is None
        else:
            writer.commit()
    if is_other:
        write(altered, id=1, a=1)
    if new != "none":
        altered.compact(full=True)
        assert altered.changelog().to_arrow()["a"].to_pylist() == [1]


def test_rows_that_wait_for_their_bucket_are_told_by_the_new_producer(tmp_path: Path) -> None:
    """Nobody has told them: the change is allowed, and a stream goes on over it."""
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"id": "BIGINT", "a": "INT"},
        primary_keys=["id"],
        options={**KEYED, "bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
    )
    write(table, id=1, a=1)
    for _ in ("into buckets", "to the highest level"):
        table.compact(full=True)
    stream = table.stream(consumer_id="audit", max_wait_s=0)
    told = next(stream)["a"].to_pylist()
    write(table, id=2, a=2)
    table = table.alter(SetOption("changelog-producer", "lookup"))
    write(table, id=3, a=3)
    table.compact(full=True)
    told += next(stream)["a"].to_pylist()
    assert told == [1, 2, 3]


def test_another_number_of_levels_tells_nothing_twice(tmp_path: Path) -> None:
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", "full-compaction"))
    write(table, id=1, a=1)
    table.compact(full=True)
    with pytest.raises(InvalidRequestError, match=r"11 levels instead of 6 .*1 file .*num-levels to 6"):
        table.alter(SetOption("num-sorted-run.compaction-trigger", "10"))
    table = table.alter(SetOption("num-sorted-run.compaction-trigger", "10"), SetOption("num-levels", "6"))
    write(table, id=1, a=2)
    table.compact(full=True)
    assert [row["a"] for row in table.changelog().to_arrow().to_pylist()] == [1, 1, 2]


def test_a_stream_of_upserts_goes_on_with_a_changelog(tmp_path: Path) -> None:
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", "none"))
    write(table, id=1, a=1)
    stream = table.stream(upserts=True, max_wait_s=0)
    next(stream)
    write(table.alter(SetOption("changelog-producer", "lookup")), id=1, a=2)
    assert [(row["_ROW_KIND"], row["a"]) for batch in stream for row in batch.to_pylist()] == [("+I", 2)]


@pytest.fixture
def altered_by_paimon(monkeypatch: pytest.MonkeyPatch) -> None:
    """`alter` changes the producer whatever its changelog has told, as Apache Paimon does."""
    monkeypatch.setattr("freshet.storage.metadata.schema_alteration.check_emitted", lambda *_: None)


TOLD_OTHERWISE = [
    ("input", "lookup", "told again"),
    ("input", "full-compaction", "told again"),
    ("lookup", "full-compaction", "told again"),
    ("full-compaction", "input", "never will be"),
]


def producer_table(folder: Path, producer: str, later: str) -> Table:
    """Of which not every row has come to the highest level."""
    options = {"full-compaction.delta-commits": "9"} if "lookup" not in (producer, later) else {}
    table = made(folder, a="INT").alter(
        SetOption("changelog-producer", producer), *(SetOption(key, value) for key, value in options.items())
    )
    for key in (1, 2, 3):
        write(table, id=key, a=1)
    return table


@pytest.mark.usefixtures("altered_by_paimon")
@pytest.mark.parametrize(("producer", "later", "what"), TOLD_OTHERWISE)
def test_another_producer_tells_again_or_never(tmp_path: Path, producer: str, later: str, what: str) -> None:
    """Changes came twice, and deletes of rows that the new one took for untold never came."""
    table = producer_table(tmp_path, producer, later)
    stream = table.stream(consumer_id="audit", max_wait_s=0)
    list(stream)
    before = latest_id(table)
    altered = table.alter(SetOption("changelog-producer", later))
    altered.append([{"id": 1, "a": 2}])
    altered.compact(full=True)
    message = rf"changed from {producer} to {later} before snapshot {before + 1}, .*{what}"
    for opened in (table, altered):
        with pytest.raises(InvalidRequestError, match=rf"{message}.*latest-full.*freshet compact"):
            list(opened.stream(consumer_id="audit", max_wait_s=0))
    with pytest.raises(InvalidRequestError, match=rf"{message}.*from snapshot {before + 1} on"):
        altered.changelog().to_arrow()
    altered.delete_consumer("audit")
    told = [row for batch in altered.stream(max_wait_s=0) for row in batch.to_pylist()]
    assert sorted((row["id"], row["a"]) for row in told) == [(1, 2), (2, 1), (3, 1)]


@pytest.mark.parametrize(("producer", "later", "what"), TOLD_OTHERWISE)
def test_another_producer_after_a_full_compaction(tmp_path: Path, producer: str, later: str, what: str) -> None:
    table = producer_table(tmp_path, producer, later)
    table.compact(full=True)
    told = [row["id"] for batch in table.stream(consumer_id="audit", max_wait_s=0) for row in batch.to_pylist()]
    assert sorted(told) == [1, 2, 3]
    altered = table.alter(SetOption("changelog-producer", later))
    altered.append([{"id": 1, "a": 2, "_ROW_KIND": "+U"}])
    altered.compact(full=True)
    changes = [row for batch in table.stream(consumer_id="audit", max_wait_s=0) for row in batch.to_pylist()]
    assert [row["a"] for row in changes] == ([2] if later == "input" else [1, 2])


def test_a_reader_of_upserts_is_opened_again_with_lookups(tmp_path: Path) -> None:
    """It never heard of rows that were deleted before level 0 was compacted."""
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", "none"))
    write(table, id=1, a=1)
    list(table.stream(upserts=True, consumer_id="copy", max_wait_s=0))
    altered = table.alter(SetOption("changelog-producer", "lookup"))
    altered.delete("id = 1")
    with pytest.raises(InvalidRequestError, match=r"changed from none to lookup .*told again"):
        list(altered.stream(upserts=True, consumer_id="copy", max_wait_s=0))


def test_a_compaction_while_there_is_no_producer_tells_nothing(tmp_path: Path) -> None:
    """Rows that a dedicated compaction was to tell came to the highest level in silence."""
    table = made(tmp_path, a="INT").alter(SetOption("changelog-producer", "lookup"), SetOption("write-only", "true"))
    write(table, id=1, a=1)
    list(table.stream(consumer_id="audit", max_wait_s=0))
    before = latest_id(table)
    table.alter(SetOption("changelog-producer", "none")).compact(full=True)
    again = table.alter(SetOption("changelog-producer", "lookup"), SetOption("write-only", "false"))
    write(again, id=1, a=2)
    message = rf"changed from lookup to none before snapshot {before + 1}, .*never will be.*latest-full"
    with pytest.raises(InvalidRequestError, match=message):
        list(again.stream(consumer_id="audit", max_wait_s=0))
    told = [row for batch in again.stream(max_wait_s=0) for row in batch.to_pylist()]
    assert [(row["id"], row["a"]) for row in told] == [(1, 2)]


def test_rows_of_a_snapshot_without_a_producer_that_were_compacted_without_one(tmp_path: Path) -> None:
    """A reader of lookup leaves them to the changelog, which passed over them."""
    silent = made(tmp_path, a="INT").alter(SetOption("changelog-producer", "none"), SetOption("write-only", "true"))
    write(silent, id=1, a=1)
    first = latest_id(silent)
    silent.compact(full=True)
    table = silent.alter(SetOption("changelog-producer", "lookup"), SetOption("write-only", "false"))
    write(table, id=2, a=2)
    with pytest.raises(InvalidRequestError, match=r"to none before snapshot 2, .*never will be.*latest-full"):
        list(table.stream(scan_mode="from-snapshot-full", from_snapshot=first, max_wait_s=0))
    told = [
        row["id"]
        for batch in table.stream(scan_mode="from-snapshot-full", from_snapshot=first + 1, max_wait_s=0)
        for row in batch.to_pylist()
    ]
    assert sorted(told) == [1, 2]
