"""Checkpoints that are kept without Spark, on a disk and in a store: files of which one run is the maker."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, LocalCheckpoint, WritableCheckpoint
from freshet.pipeline.identity.checkpoint_owner import checkpoint_problem
from freshet.pipeline.local import stream_checkpoint
from freshet.pipeline.local.local_query import Trigger
from freshet.pipeline.local.store_checkpoint import StoreCheckpoint, pipeline_checkpoint
from tests.kit.s3_server import S3Place
from tests.pipeline.local.counted import Counted, Once, mortal


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> WritableCheckpoint:
    return LocalCheckpoint(tmp_path / "c") if request.param == "disk" else StoreCheckpoint(f"memory://{uuid4()}/c", {})


def test_a_file_has_one_maker(folder: WritableCheckpoint) -> None:
    assert folder.create("offsets", "7", text="sieben – ü")
    assert not folder.create("offsets", "7", text="another")
    assert folder.read("offsets", "7") == "sieben – ü"
    assert folder.read("offsets", "8") is None
    assert folder.repeat("8", "offsets", "7", text="sieben – ü")
    assert folder.create("offsets", "9", text="another's")
    assert not folder.repeat("9", "offsets", "8", text="sieben – ü")
    folder.delete("offsets", "9")
    assert folder.read("offsets", "8") == "sieben – ü"
    assert sorted(folder.numbers("offsets")) == [7, 8] and folder.numbers("commits") == []
    folder.delete("offsets", "7")
    folder.delete("offsets", "7")
    assert folder.numbers("offsets") == [8]
    assert folder.create("offsets", "7", text="again")
    folder.replace("freshet.json", "{}")
    folder.replace("freshet.json", "[]")
    assert folder.read("freshet.json") == "[]"
    assert folder.write_problem() is None
    assert folder.place("offsets", "7").endswith("/c/offsets/7")


def test_many_makers_of_one_file(folder: WritableCheckpoint) -> None:
    makers: list[int] = []

    def make(number: int) -> None:
        if folder.create("offsets", "0", text=f"of {number}"):
            makers.append(number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(makers) == 1 and folder.read("offsets", "0") == f"of {makers[0]}"


def test_a_disk_without_hard_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", source)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match=r"no hard links, by which a run claims a batch.*offsets/0"):
        LocalCheckpoint(tmp_path).create("offsets", "0", text="")
    assert list((tmp_path / "offsets").iterdir()) == []


def test_a_request_that_a_network_disk_repeats_is_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = os.link

    def link(source: str, target: str) -> None:
        linked(source, target)
        linked(source, target)

    monkeypatch.setattr(os, "link", link)
    folder = LocalCheckpoint(tmp_path)
    assert folder.create("offsets", "0", text="0")
    assert not folder.create("offsets", "0", text="0")


def test_a_checksum_of_hadoops_never_stays_beside_another_file(tmp_path: Path) -> None:
    """While it is there and the file is not, Spark cannot write the file (`test_spark_goes_on`)."""
    folder, offsets = LocalCheckpoint(tmp_path), tmp_path / "offsets"
    offsets.mkdir()
    for number in range(4):
        (offsets / f".{number}.crc").touch()
    folder.create("offsets", "0", text="0")
    folder.repeat("1", "offsets", "0", text="0")
    folder.delete("offsets", "2")
    folder.forget("offsets", [0, 3])
    assert [path.name for path in offsets.iterdir()] == ["1"]


def test_a_folder_knows_what_it_lies_in(folder: WritableCheckpoint) -> None:
    """Of a new checkpoint that lies in another one this is said, wherever the two are."""
    folder.replace("freshet.json", "{}")
    inner: CheckpointFolder
    if isinstance(folder, StoreCheckpoint):
        inner = StoreCheckpoint(folder.place("offsets", "mine"), {})
    else:
        inner = LocalCheckpoint(Path(folder.place("offsets", "mine")))
    problem = checkpoint_problem(inner, pipeline="p", table=None)
    assert problem is not None and f"would lie in another checkpoint, {folder.place().rstrip('/')}:" in problem
    folder.delete("freshet.json")
    assert checkpoint_problem(inner, pipeline="p", table=None) is None


def test_a_query_in_a_store(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under either scheme it is one checkpoint; what is old goes in the background."""
    monkeypatch.setattr(stream_checkpoint, "BATCHES_KEPT", 2)
    monkeypatch.setattr(stream_checkpoint, "PURGED_AT_ONCE", 2)
    table, ids = Once(), set()
    for scheme, there in (("s3", 3), ("s3a", 7)):
        folder = StoreCheckpoint(f"{scheme}://{s3.bucket}/c/", s3.store_options)
        query = mortal(folder, [Counted(there, limit=1)], table.write, Trigger(available_now=True))
        query.run()
        ids.add(query.query_id)
        folder._env.finish_later()
    assert len(ids) == 1
    assert table.counts() == list(range(1, 8))
    assert sorted(folder.numbers("offsets")) == sorted(folder.numbers("commits")) == [4, 5, 6]


FILE = """
name: orders
sources:
  - files: {path: FOLDER/in}
    format: json
table: {warehouse: FOLDER/lake, name: shop.orders, primary_key: [id], columns: {id: BIGINT}}
checkpoint: "CHECKPOINT"
"""


@pytest.fixture
def of_file(tmp_path: Path) -> Callable[[str], WritableCheckpoint]:
    def opened(checkpoint: str) -> WritableCheckpoint:
        path = tmp_path / "orders.yaml"
        path.write_text(FILE.replace("FOLDER", str(tmp_path)).replace("CHECKPOINT", checkpoint))
        return pipeline_checkpoint(load_pipeline(path, {}))

    return opened


def test_where_a_file_puts_it(of_file: Callable[[str], WritableCheckpoint], tmp_path: Path) -> None:
    assert of_file(str(tmp_path / "c")).place("a") == f"{tmp_path}/c/a"
    assert of_file((tmp_path / "a b").as_uri()).place() == f"{tmp_path}/a b"
    assert of_file("s3a://bucket/c").place("a") == "s3a://bucket/c/a"
    with pytest.raises(ConfigurationError, match=r"orders.yaml:\d+: checkpoint: .*not at hdfs://.*run_on: spark"):
        of_file("hdfs://name/c")
