"""Rows that no commit has: a program run again with a used number, a block that is left without a commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import SetOption
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = {"id": "BIGINT", "status": "STRING"}
    return Catalog(str(tmp_path)).create_table(
        "shop.orders", schema=schema, primary_keys=["id"], options={"bucket": "1"}
    )


def load(table: Table, identifier: int | None, *rows: tuple[int, str]) -> None:
    """The first snippet of the README, as a program of its own."""
    with table.writer("loader-1") as writer:
        writer.write([{"id": key, "status": status} for key, status in rows])
        writer.commit(identifier)


def held(table: Table) -> dict[int, str]:
    return {row["id"]: row["status"] for row in table.scan().to_arrow().to_pylist()}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_same_program_with_other_rows_is_another_commit(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    load(table, None, (1, "new"), (2, "paid"))
    load(table, None, (1, "sent"), (3, "new"))
    assert held(table) == {1: "sent", 2: "paid", 3: "new"}
    assert not warnings(caplog)


def test_a_number_that_is_used_up_is_reported_with_its_snapshot(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    load(table, None, (9, "other"))
    load(table, 1, (1, "new"))
    load(table, 2, (2, "new"))
    load(table, 1, (1, "sent"), (3, "new"))
    assert held(table) == {9: "other", 1: "new", 2: "new"}
    (warning,) = warnings(caplog)
    assert "commit 1 of user 'loader-1' was made before (snapshot 2 has it)" in warning
    assert "the rows written for it (2) were discarded" in warning


def test_a_number_whose_snapshot_has_expired(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(4):
        load(table, number, (number, "new"))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    load(table, 1, (1, "sent"))
    (warning,) = warnings(caplog)
    assert "commit 1 of user 'loader-1' was made before (its snapshot has expired" in warning


def load_two_of_three(table: Table, number: int | None, error: Exception | None = None) -> None:
    """One commit is missing at the end of the block."""
    with table.writer("loader-1") as writer:
        writer.write([{"id": 1, "status": "new"}])
        writer.commit(number)
        writer.write([{"id": 2, "status": "new"}, {"id": 3, "status": "new"}])
        if error is not None:
            raise error


@pytest.mark.parametrize("number", [None, 4])
def test_a_block_left_with_rows_that_no_commit_has(table: Table, number: int | None) -> None:
    with pytest.raises(InvalidRequestError, match=r"2 rows were not committed.*commit\(\) is missing"):
        load_two_of_three(table, number)
    assert held(table) == {1: "new"}
    assert not table.remove_orphan_files(older_than_ms=-60_000).files


def test_a_block_left_by_an_exception_discards(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError, match="of the program"):
        load_two_of_three(table, None, KeyError("of the program"))
    assert held(table) == {1: "new"}
    assert not warnings(caplog)


def test_a_block_left_after_a_write_that_failed_in_the_middle(table: Table) -> None:
    row_count = 200_000  # more than is gathered before rows are taken

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": range(row_count), "status": ["x" * 60] * row_count}, table.arrow_schema)
        raise OSError("the source is gone")

    with (
        pytest.raises(InvalidRequestError, match=r"rows of a write that failed were not committed"),
        table.writer("loader-1") as writer,
        pytest.raises(Exception, match="the source is gone"),
    ):
        writer.write(pa.RecordBatchReader.from_batches(table.arrow_schema, batches()))
    assert held(table) == {}


def test_a_block_left_after_abort_or_with_nothing_accepted(table: Table) -> None:
    with table.writer("loader-1") as writer:
        writer.write([{"id": 1, "status": "new"}])
        writer.abort()
    with table.alter(SetOption("ignore-delete", "true")).writer("loader-1") as writer:
        assert writer.write([{"id": 1, "status": "new", "_ROW_KIND": "-D"}]) == 0
    assert held(table) == {}


def test_close_without_a_commit_reports_what_is_gone(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    writer = table.writer("loader-1")
    writer.write([{"id": 1, "status": "new"}])
    writer.close()
    writer.close()
    assert ["1 row was not committed" in text for text in warnings(caplog)] == [True]
