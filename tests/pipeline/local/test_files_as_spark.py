"""Files as Spark reads them: the same folders, options and names; and both engines in turns on one checkpoint."""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.decode import raw_records
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.local.file_source import file_source
from freshet.pipeline.local.local_query import LocalQuery, Trigger
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.file_lines import line_blocks
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.sources.raw_frame import read_stream
from tests.pipeline.local.counted import NoWorkers
from tests.pipeline.query.task.test_file_codecs import hadoop_blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WORK: KeptValue[BatchWork] = KeptValue(BatchWork({}, {}))
COLUMNS = (raw_records.RANK, raw_records.TOPIC, raw_records.VALUE)
Rows = list[tuple[int, str, bytes]]

LINES = [
    b"", b"\n", b"\n\n", b"a", b"a\n\nb", b"a\r\nb\r\n", b"a\rb\r", b"a\r\r\r\n\nb", b"a\n\rb",
    b"\xef\xbb\xbfa\nb", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbfa\n\xef\xbb\xbf", b"\xff\xfe\x80\n\x00\n",
    "a\u0085b\u2028c\x0bd\n".encode(), "a\nü\n".encode("utf-16"),
]  # fmt: skip
TEXT = b"a\nb\r\nc"
COMPRESSED = {
    "a.gz": gzip.compress(TEXT[:3]) + gzip.compress(TEXT[3:]),
    "A.GZ": gzip.compress(TEXT),
    "a.bz2": bz2.compress(TEXT),
    "a.deflate": zlib.compress(TEXT),
    "a.zst": pa.Codec("zstd").compress(TEXT, asbytes=True),
    "b.zstd": pa.Codec("zstd").compress(TEXT, asbytes=True),
    "a.snappy": hadoop_blocks("snappy", [TEXT[:3]], [TEXT[3:5], TEXT[5:]]),
    "a.lz4": hadoop_blocks("lz4_raw", [TEXT[:3]], [TEXT[3:5], TEXT[5:]]),
    "empty.gz": b"",
    "plain.xz": TEXT,
    "plain.Z": TEXT,
}
NAMES = [
    "a b", "a%20b", "100%", "ü", "u\u0308", "日本", "😀", "a+b", "a#b", "a'b", 'a"b', "a;b,c=d&e@f!g$h(i)~",
    "a^b|c`d<e>", " lead", "trail ", "_hid", ".hid", "x._COPYING_", "x.crc", "_a=1", "tab\tx", "\x7f", "\u200b",
    "\u00a0", "\u2028",
]  # fmt: skip
"""Without those that Spark 4.2.1 does not read once: `a:b` fails, and for each name in a batch that looks like a
pattern all files of its folder are read once more."""
PATHS = ["r.json", "a=1/x.json", "sub/y.json", "_h/z.json", "sub/deep/_n", "ok/n._COPYING_"]

CASES: dict[str, tuple[dict[str, bytes], dict[str, str]]] = {
    "ends of lines": ({f"{at:02}": content for at, content in enumerate(LINES)}, {}),
    "lineSep": ({f"{at:02}": content for at, content in enumerate(LINES)}, {"lineSep": "\r\n"}),
    "lineSep encoded": (
        {f"{at:02}": content for at, content in enumerate(LINES)},
        {"lineSep": "\n", "encoding": "UTF-16LE", "compression": "gzip"},
    ),
    "compressed": (COMPRESSED, {}),
    "names": ({f"in %41 ü/{name}": b"x" for name in NAMES}, {"path": "in %41 ü"}),
    "folders": (dict.fromkeys(PATHS[:1] + PATHS[2:], b"x"), {}),
    "folders below": (dict.fromkeys(PATHS, b"x"), {"recursiveFileLookup": "true", "pathGlobFilter": "*.js[no]n"}),
    "partitions": ({"a=1/b=2/x": b"x", "a=2/b=%20/y": b"y", "_h/z": b"z"}, {}),
    "pattern": (dict.fromkeys(("a1/x", "a2/y", "b/z", "_a/q", "a1/_h"), b"x"), {"path": "{a[1-2],_a}/?"}),
    "limited": ({str(at): b"x" * at for at in range(7)}, {"maxFilesPerTrigger": "3"}),
    "limited bytes": ({str(at): b"x" * at for at in range(7)}, {"maxBytesPerTrigger": "5"}),
    "latest first": ({str(at): b"x" for at in range(7)}, {"latestFirst": "true", "maxFilesPerTrigger": "3"}),
    "too old": ({str(at): b"x" for at in range(7)}, {"maxFileAge": "2s", "maxFilesPerTrigger": "3"}),
}
"""Files, the later the newer, and options."""


class Batches:
    """What each batch has read, by its number; one that comes again is the same."""

    def __init__(self) -> None:
        self.rows: dict[int, Rows] = {}

    def add(self, number: int, rows: Rows) -> None:
        rows = sorted(rows, key=lambda row: row[:2])
        assert self.rows.setdefault(number, rows) == rows


@pytest.mark.parametrize("case", CASES)
def test_a_folder_is_read_as_on_spark(spark: SparkSession, tmp_path: Path, case: str) -> None:
    files, given = CASES[case]
    options = dict(given)
    path = str(tmp_path / "in" / options.pop("path", ""))
    for at, (name, content) in enumerate(files.items()):
        _put(tmp_path / "in" / name, 1_700_000_000_123 + at * 1000, content)
    config = SourceConfig.model_validate({"files": {"path": path.rstrip("/"), **options}, "select": {}})
    theirs, ours = Batches(), Batches()
    _on_spark(spark, config, tmp_path / "theirs", theirs)
    _here(config, tmp_path / "ours", ours)
    assert _differences(ours.rows, theirs.rows) == {}
    assert _offsets(tmp_path / "ours") == _offsets(tmp_path / "theirs")
    assert _log(tmp_path / "ours") == _log(tmp_path / "theirs")
    assert any(theirs.rows.values())


def test_both_engines_go_on_with_a_log(spark: SparkSession, tmp_path: Path) -> None:
    folder, batches = tmp_path / "in", Batches()
    config = SourceConfig.model_validate({"files": {"path": str(folder), "maxFilesPerTrigger": "1"}, "select": {}})
    turns = [3, 9, 10, 13, 19, 20, 23, 30, 31, 42]
    for turn, last in enumerate(turns):
        for number in range(turns[turn - 1] if turn else 0, last):
            _put(folder / f"{number:02} ü", 1_700_000_000_000 + number, b"%d\n" % number)
        if turn % 2:
            _on_spark(spark, config, tmp_path / "c", batches)
        else:
            _here(config, tmp_path / "c", batches)
    values = {number: [row[2] for row in rows] for number, rows in batches.rows.items()}
    assert values == {number: [b"%d" % number] for number in range(42)}
    assert {"9.compact", "19.compact", "29.compact", "39.compact"} <= set(_log(tmp_path / "c"))
    assert _log(tmp_path / "c")["39.compact"].count("\n") == 40
    (tmp_path / "c" / "commits" / "41").unlink()
    again = Batches()
    _here(config, tmp_path / "c", again)
    assert again.rows == {41: batches.rows[41]}
    (tmp_path / "c" / "commits" / "41").unlink()
    (tmp_path / "c" / "commits" / ".41.crc").unlink(missing_ok=True)
    _on_spark(spark, config, tmp_path / "c", batches)


def _put(path: Path, time_ms: int, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(time_ms * 1_000_000,) * 2)


def _on_spark(spark: SparkSession, config: SourceConfig, checkpoint: Path, batches: Batches) -> None:
    def write(frame: DataFrame, number: int) -> None:
        batches.add(number, [(row[0], row[1], bytes(row[2])) for row in frame.collect()])

    frame = read_stream(spark, config).select(*COLUMNS)
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination(600)


def _here(config: SourceConfig, checkpoint: Path, batches: Batches) -> None:
    folder = LocalCheckpoint(checkpoint)
    source = file_source(config, folder, 0)

    def write(batch: MicroBatch) -> None:
        start, end = query.span(batch.number, 0)
        assert end is not None
        pieces = source.pieces(start, end, WORK, 0, 2)
        blocks = [block for piece in pieces for block in line_blocks(piece.spans, piece.rule)]
        batches.add(batch.number, [row for block in blocks for row in _rows(block)])

    query = LocalQuery("p", folder, [source], write, NoWorkers(), Trigger(available_now=True), lambda progress: None)
    query.run()


def _rows(block: Any) -> Sequence[tuple[int, str, bytes]]:
    columns = (block.taken(name, np.arange(block.num_rows)).to_pylist() for name in COLUMNS)
    return list(zip(*columns, strict=True))


def _log(checkpoint: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (checkpoint / "sources" / "0").iterdir() if path.name[0] != "."}


def _offsets(checkpoint: Path) -> dict[str, list[str]]:
    folder = LocalCheckpoint(checkpoint)
    return {
        str(number): (folder.read("offsets", str(number)) or "").split("\n")[2:] for number in folder.numbers("offsets")
    }


def _differences(ours: dict[int, Rows], theirs: dict[int, Rows]) -> dict[int, list[Any]]:
    """By batch, the rows that one has more often than the other."""
    batches = {number: (ours.get(number, []), theirs.get(number, [])) for number in {*ours, *theirs}}
    return {
        number: [*(Counter(one) - Counter(other)), *(Counter(other) - Counter(one))]
        for number, (one, other) in batches.items()
        if one != other
    }
