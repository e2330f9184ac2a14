"""A folder of files as a source: what a batch takes, and in which order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.decode import raw_records
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.local import file_listing
from freshet.pipeline.local.file_source import FolderSource, file_source
from freshet.pipeline.local.store_checkpoint import StoreCheckpoint
from freshet.pipeline.query.driver.read_digests import files_between
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.file_lines import line_blocks
from freshet.pipeline.query.wire.file_uris import place_of
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.storage.io.env import store_env
from tests.kit.s3_server import S3Place

WORK: KeptValue[BatchWork] = KeptValue(BatchWork({}, {}))


class Folder:
    """A folder of files with given times, and a checkpoint."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "in").mkdir()

    def put(self, name: str, seconds: float, text: str = "x") -> None:
        """A file of a time."""
        path = self.root / "in" / name
        path.write_text(text)
        os.utime(path, ns=(round(seconds * 1000) * 1_000_000,) * 2)

    def source(self, *, conf: Any = MappingProxyType({}), **options: Any) -> FolderSource:
        """A run of the source."""
        config = SourceConfig.model_validate({"files": {"path": str(self.root / "in"), **options}, "select": {}})
        return file_source(config, LocalCheckpoint(self.root / "c"), 0, conf=conf)

    def batches(self, source: FolderSource) -> list[list[str]]:
        """The names in each batch, until nothing is new."""
        return list(self._batches(source, None))

    def _batches(self, source: FolderSource, at: str | None) -> Iterator[list[str]]:
        while (end := source.latest(at)) != at:
            assert end is not None
            pieces = source.pieces(at, end, WORK, 0, 2)
            yield [place_of(span.uri).rpartition("/")[2] for piece in pieces for span in piece.spans]
            source.done(end)
            at = end

    def read(self, name: str) -> str | None:
        """A file of the log."""
        return LocalCheckpoint(self.root / "c").read("sources", "0", name)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_files_come_by_time_and_then_by_path(folder: Folder) -> None:
    for name, seconds in (("c", 5), ("a", 9), ("b", 9), ("d", 1.001)):
        folder.put(name, seconds)
    assert folder.batches(folder.source()) == [["d", "c", "a", "b"]]
    assert folder.batches(folder.source(maxFilesPerTrigger="3")) == [["d", "c", "a", "b"]]
    assert [time_ms for _, time_ms in files_between(-1, 0, folder.read)] == [9000, 9000, 5000, 1001]


def test_a_batch_takes_so_many_files(folder: Folder) -> None:
    for number in range(5):
        folder.put(str(number), number)
    assert folder.batches(folder.source(maxFilesPerTrigger="2")) == [["0", "1"], ["2", "3"], ["4"]]


def test_a_batch_takes_so_many_bytes_and_one_file_at_least(folder: Folder) -> None:
    for number, size in enumerate((3, 1, 1, 1, 5)):
        folder.put(str(number), number, "x" * size)
    assert folder.batches(folder.source(maxBytesPerTrigger="2")) == [["0"], ["1", "2"], ["3"], ["4"]]


def test_the_latest_come_first(folder: Folder) -> None:
    for number in range(3):
        folder.put(str(number), number * 9_000_000)
    source = folder.source(latestFirst="true", maxFilesPerTrigger="1", maxFileAge="1d")
    assert folder.batches(source) == [["2"], ["1"], ["0"]], "with a limit the age does not count"


def test_files_that_are_too_old_are_left_out_but_for_the_first_batch(folder: Folder) -> None:
    folder.put("old", 1000)
    folder.put("new", 1000 + 90_000)
    source = folder.source(maxFileAge="1d")
    at = source.latest(None)
    folder.put("older", 999)
    assert source.latest(at) == at
    folder.put("within", 1000 + 9_000)
    assert source.latest(at) == '{"logOffset":1}'
    assert folder.source(maxFileAge="1d").latest('{"logOffset":1}') == '{"logOffset":1}'


def test_files_that_are_too_old_are_told_once(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.put("newest", 10 * 86_400)
    source = folder.source()
    assert folder.batches(source) == [["newest"]]
    folder.put("old", 86_400)
    folder.put("older", 43_200)
    for _ in range(2):
        source._look(at_once=True)
    assert source.latest('{"logOffset":0}') == '{"logOffset":0}'
    (text,) = [each for each in caplog.messages if "maxFileAge" in each]
    assert "/old and 1 more files are not read" in text


def test_a_pipe_is_no_file_and_a_name_need_not_be_text(folder: Folder) -> None:
    os.mkfifo(folder.root / "in" / "pipe")
    folder.put("n\udcff", 1000, "a\nb\n")
    source = folder.source()
    end = source.latest(None)
    assert end is not None
    (piece,) = source.pieces(None, end, WORK, 0, 2)
    assert [block.num_rows for block in line_blocks(piece.spans, piece.rule)] == [2]


def test_a_file_is_read_again_once_it_is_forgotten_and_newer(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_listing, "_ALL_S", 0.0)
    monkeypatch.setattr(file_listing, "_ALL_SHARE", 0.0)
    folder.put("a", 1000)
    source = folder.source(maxFileAge="1d")
    source.latest(None)
    folder.put("a", 2000)
    assert source.latest('{"logOffset":0}') == '{"logOffset":0}'
    folder.put("b", 200_000)
    source.latest('{"logOffset":0}')
    folder.put("a", 200_001)
    assert source.latest('{"logOffset":1}') == '{"logOffset":2}'


def test_a_run_reads_on_behind_the_last(folder: Folder) -> None:
    folder.put("a", 1)
    assert folder.source().latest(None) == '{"logOffset":0}'
    folder.put("b", 2)
    again = folder.source()
    assert again.first() is None
    assert again.latest(None) == '{"logOffset":0}', "written down, but no batch of the query"
    assert again.latest('{"logOffset":0}') == '{"logOffset":1}'
    with pytest.raises(PipelineFailedError, match="sources/0/7 is not there"):
        again.latest('{"logOffset":7}')


def test_what_comes_later_is_left_to_the_next_run(folder: Folder) -> None:
    for number in range(3):
        folder.put(str(number), number)
    source = folder.source(maxFilesPerTrigger="1")
    source.bound()
    folder.put("later", 0)
    assert folder.batches(source) == [["0"], ["1"], ["2"]]
    assert folder.source().latest('{"logOffset":2}') == '{"logOffset":3}'


def test_an_empty_folder_is_no_offset(folder: Folder) -> None:
    source = folder.source()
    assert source.latest(None) is None
    assert source.lag('{"logOffset":1}') is None


def test_waiting_ends_with_a_file(folder: Folder) -> None:
    source = folder.source()
    assert not source.wait(None, 0)
    folder.put("a", 1)
    assert source.wait(None, 5)
    at = source.latest(None)
    assert not source.wait(at, 0)
    assert source.wait(None, 0), "a batch is planned already"


def test_an_idle_folder_is_not_listed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("a", 1)
    os.utime(folder.root / "in", (1000, 1000))
    source = folder.source()
    at = source.latest(None)
    monkeypatch.setattr(os, "scandir", None)
    for _ in range(50):
        assert not source.wait(at, 0)


def test_files_are_removed_once_their_batch_is_done(folder: Folder) -> None:
    folder.put("a", 1)
    folder.put("b", 2)
    source = folder.source(cleanSource="delete", maxFilesPerTrigger="1")
    end = source.latest(None)
    assert end is not None
    source.done(end)
    source.close()
    assert os.listdir(folder.root / "in") == ["b"]
    again = folder.source(cleanSource="delete")
    again.done(end)
    again.close()
    assert os.listdir(folder.root / "in") == ["b"]


def test_files_are_archived_below_their_path(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.put("a b", 1)
    options = {"cleanSource": "archive", "sourceArchiveDir": str(folder.root / "done")}
    source = folder.source(**options)
    end = source.latest(None)
    assert end is not None
    for run in (source, folder.source(**options)):
        run.done(end)
        run.close()
    assert (folder.root / f"done/{folder.root}/in/a b").read_text() == "x"
    assert os.listdir(folder.root / "in") == [] and not caplog.records


def test_small_files_are_one_piece_and_large_ones_are_cut(folder: Folder) -> None:
    lines = [json.dumps({"id": number, "text": "y" * 900}) for number in range(11_000)]
    folder.put("large", 1, "\n".join(lines))
    folder.put("small", 2, "s\n")
    source = folder.source()
    end = source.latest(None)
    assert end is not None
    pieces = source.pieces(None, end, WORK, 0, 3)
    assert [[span.uri[-5:] for span in piece.spans] for piece in pieces] == [["large"], ["large"], ["large", "small"]]
    found = [
        value
        for piece in pieces
        for block in line_blocks(piece.spans, piece.rule)
        for value in block.values(np.arange(block.num_rows))
    ]
    assert found == [line.encode() for line in [*lines, "s"]]
    assert len(source.pieces(None, end, WORK, 0, 1)) == 1
    for number in range(300):
        folder.put(f"n{number}", 3)
    assert len(source.pieces(end, source.latest(end) or "", WORK, 0, 8)) == 1


def test_files_of_a_store_are_read_and_listed_once_a_second(tmp_path: Path) -> None:
    env = store_env("memory://files", {})
    env.file_io.create_exclusive("memory://files/in/a", b"x")
    config = SourceConfig.model_validate({"files": {"path": "memory://files/in"}, "select": {}})
    source = file_source(config, LocalCheckpoint(tmp_path), 0)
    assert source.wait(None, 0)
    at = source.latest(None)
    env.file_io.create_exclusive("memory://files/in/b", b"x")
    assert not source.wait(at, 0)
    assert source.wait(at, 5) and source.latest(at) == '{"logOffset":1}'


def test_a_bucket_and_a_checkpoint_in_it(s3: S3Place) -> None:
    root = f"s3a://{s3.bucket}"
    env = store_env(root, s3.store_options)
    for name in ("day=1/a b#.json", "day=2/b.json", "_h/c"):
        env.file_io.create_exclusive(f"{root}/in/{name}", name.encode())
    files = {"path": f"{root}/{{in,none}}", "maxFilesPerTrigger": "1", "cleanSource": "archive"}
    config = SourceConfig.model_validate({"files": {**files, "sourceArchiveDir": f"{root}/done"}, "select": {}})
    folder = StoreCheckpoint(f"{root}/c", s3.store_options)
    source = file_source(config, folder, 0, options=s3.store_options)
    found = {}
    for at, end in ((None, '{"logOffset":0}'), ('{"logOffset":0}', '{"logOffset":1}')):
        assert source.latest(at) == end
        (piece,) = source.pieces(at, end, WORK, 0, 2)
        (block,) = line_blocks(piece.spans, piece.rule)
        found[block.column(raw_records.TOPIC)[0].as_py()] = block.column(raw_records.VALUE)[0].as_py()
        source.done(end)
    source.close()
    assert found == {
        f"{root}/in/day=1/a%20b%23.json": b"day=1/a b#.json",
        f"{root}/in/day=2/b.json": b"day=2/b.json",
    }
    assert env.file_io.read_bytes(f"{root}/done/in/day=2/b.json") == b"day=2/b.json"
    assert not env.file_io.exists(f"{root}/in/day=2/b.json")
    assert file_source(config, folder, 0, options=s3.store_options).latest(None) == '{"logOffset":1}'


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "hdfs://there/in"}, "run the pipeline on Spark"),
        ({"path": "/in", "cleanSource": "archive", "sourceArchiveDir": "s3a://b/c"}, "lies in another file system"),
        ({"path": "/in", "maxFilesPerTrigger": "0"}, "wants a whole number above 0"),
        ({"path": "/in", "maxFileAge": "-1d"}, "wants a time"),
        ({"path": "/in", "maxBytesPerTrigger": "x"}, "wants a size"),
        ({"path": "/in", "lineSep": "ü", "encoding": "ascii"}, "cannot be written in the encoding"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, options: dict[str, str], text: str) -> None:
    config = SourceConfig.model_validate({"files": options, "select": {}})
    with pytest.raises(ConfigurationError, match=text):
        file_source(config, LocalCheckpoint(tmp_path), 0)


def test_settings_of_spark_that_count(folder: Folder) -> None:
    folder.put("a", 1)
    conf = {
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.streaming.fileSource.log.compactInterval": "1",
    }
    source = folder.source(conf=conf)
    end = source.latest(None)
    assert end is not None
    (piece,) = source.pieces(None, end, WORK, 0, 1)
    assert piece.rule.takes_losses and (folder.root / "c/sources/0/0.compact").exists()
