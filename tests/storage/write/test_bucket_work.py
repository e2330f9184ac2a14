"""What is made for a commit beside the work on its buckets: in another thread, and gone where that work fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.storage.metadata.hash_index_store import HashIndexStore
from freshet.storage.write.key_value_bucket_writer import KeyValueBucketWriter
from freshet.storage.write.open_buckets import made_beside


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_value_is_made_while_the_block_runs(executor: Executor) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    undone: list[str] = []

    def make() -> str:
        has_begun.set()
        assert may_end.wait(300)
        return "made"

    with made_beside(executor, make, undone.append) as made:
        assert has_begun.wait(300)
        may_end.set()
        assert made() == "made"
    assert not undone


def test_without_an_executor_it_is_made_when_it_is_taken() -> None:
    steps: list[str] = []
    with made_beside(None, lambda: steps.append("made"), lambda _: steps.append("undone")) as made:
        steps.append("work")
        made()
    assert steps == ["work", "made"]


def test_it_is_undone_where_the_block_fails(executor: Executor) -> None:
    undone: list[str] = []
    has_begun = threading.Event()

    def make() -> str:
        has_begun.set()
        return "made"

    def fail() -> None:
        with made_beside(executor, make, undone.append):
            assert has_begun.wait(300)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert undone == ["made"]


def test_there_is_nothing_to_undo_where_making_it_fails(executor: Executor) -> None:
    def make() -> str:
        raise OSError("full")

    undone: list[str] = []
    with pytest.raises(OSError, match="full"), made_beside(executor, make, undone.append) as made:
        made()
    assert not undone


def test_a_failed_flush_leaves_no_hash_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a key of it known to the next writer."""
    orders = Catalog(tmp_path).create_table("a.b", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": -1})
    is_written = threading.Event()
    write = HashIndexStore.write

    def noted(self: HashIndexStore, data: bytes) -> Any:
        try:
            return write(self, data)
        finally:
            is_written.set()

    def fail(*_: object) -> None:
        assert is_written.wait(300)
        raise OSError("full")

    monkeypatch.setattr(HashIndexStore, "write", noted)
    with orders.writer("first") as writer:
        writer.write([{"id": 1}])
        with monkeypatch.context() as patch:
            patch.setattr(KeyValueBucketWriter, "flush", fail)
            with pytest.raises(OSError, match="full"):
                writer.commit()
        writer.abort()
    assert not list(tmp_path.rglob("index-*"))
    with orders.writer("second") as writer:
        writer.write([{"id": 1}, {"id": 2}])
        writer.commit()
    assert [path.stat().st_size for path in tmp_path.rglob("index/index-*") if "manifest" not in path.name] == [8]
    assert orders.scan().count() == 2
