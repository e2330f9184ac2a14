"""Lines of files, by spans, as a worker reads them."""

from __future__ import annotations

import gzip
import io
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.file_lines import (
    SPAN_UNIT,
    FilePiece,
    FileRule,
    FileSpan,
    is_splittable,
    line_blocks,
    whole_lines,
)
from freshet.pipeline.query.wire.batch_pin import Handed, TaskPlace
from freshet.pipeline.query.wire.file_uris import uri_of
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PACKED, PackedValue
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import Env, store_env
from tests.pipeline.records import decoder_of, pipeline_of

MARK = b"\xef\xbb\xbf"

ENDS = [
    (b"", []),
    (b"\n", [b""]),
    (b"a\n\nb", [b"a", b"", b"b"]),
    (b"a\r\nb\r\n", [b"a", b"b"]),
    (b"a\rb\r", [b"a", b"b"]),
    (b"a\r\r\r\n\nb", [b"a", b"", b"", b"", b"b"]),
    (b"a\n\rb", [b"a", b"", b"b"]),
    (MARK + b"a\nb", [b"a", b"b"]),
    (MARK, []),
    (MARK + b"\nx", [b"", b"x"]),
    (MARK * 2 + b"a\n" + MARK, [MARK + b"a", MARK]),
    (b"\xff\xfe\x80\n\x00\n", [b"\xff\xfe\x80", b"\x00"]),
    ("a\u0085b\u2028c\x0bd\x0ce\n".encode(), ["a\u0085b\u2028c\x0bd\x0ce".encode()]),
]
"""What Spark 4.2.1 gives."""


@pytest.mark.parametrize(("content", "lines"), ENDS)
def test_lines_end_as_in_spark(tmp_path: Path, content: bytes, lines: list[bytes]) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert _values([FileSpan(uri_of(str(path)), 0)]) == lines


def test_a_separator_replaces_the_usual_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"a\r\nb\n\r\n")
    span = FileSpan(uri_of(str(path)), 0)
    assert _values([span], FileRule(b"\n")) == [b"a\r", b"b", b"\r"]
    assert _values([span], FileRule(b"\r\n")) == [b"a", b"b\n"]


@pytest.mark.parametrize("separator", [None, b"\n", b"\r\n", b"ab"])
def test_each_line_is_in_one_span_wherever_a_file_is_cut(separator: bytes | None) -> None:
    chance = random.Random(7)
    width = len(separator or b"\n")
    for _ in range(600):
        content = bytes(chance.choice(b"\n\rab") for _ in range(chance.randrange(14)))
        content = MARK + content if chance.random() < 0.2 else content
        cuts = sorted(chance.sample(range(width, len(content) + 9), chance.randrange(4)))
        found = [
            line
            for start, end in zip([0, *cuts], [*cuts, None], strict=True)
            for line in _of_span(content, start, end, separator, chance.choice([1, 2, 3, 100]))
        ]
        assert found == _split(content.removeprefix(MARK), separator), (content, cuts)


def test_a_line_longer_than_what_is_read_at_once_is_whole() -> None:
    content = b"a" * 5000 + b"\n" + b"b" * 3000
    assert _of_span(content, 0, None, None, 16) == [b"a" * 5000, b"b" * 3000]


@pytest.mark.parametrize(
    ("name", "separator", "is_cut"),
    [("a.json", None, True), ("a.json", b"\r\n", True), ("a.json", b"\r\r", False), ("a.gz", None, False)],
)
def test_what_cannot_be_looked_at_from_the_middle_is_not_cut(name: str, separator: bytes | None, is_cut: bool) -> None:
    assert is_splittable(f"file:///in/{name}", separator) is is_cut


def test_lines_of_small_files_come_in_one_block_with_the_columns_of_raw_records(tmp_path: Path) -> None:
    spans = []
    for number, content in enumerate((b"a\nb\n", b"", b"c")):
        path = tmp_path / f"{number} ü.json"
        path.write_bytes(content)
        spans.append(FileSpan(uri_of(str(path)), 1_700_000_000_123 + number))
    spans.append(FileSpan(spans[0].uri, 5, 2 * SPAN_UNIT))
    (block,) = line_blocks(spans, FileRule())
    topic = f"file:{tmp_path}/0%20ü.json"
    assert block.column(raw_records.TOPIC).to_pylist() == [topic, topic, f"file:{tmp_path}/2%20ü.json"]
    assert block.column(raw_records.RANK).to_pylist() == [1_700_000_000_123_000] * 2 + [1_700_000_000_125_000]
    assert block.column(raw_records.TIMESTAMP).cast(pa.int64()).equals(block.column(raw_records.RANK))
    assert block.column(raw_records.VALUE).to_pylist() == [b"a", b"b", b"c"]
    assert block.column(raw_records.OFFSET).to_pylist() == [0, 0, 0]
    for name in (raw_records.KEY, raw_records.KAFKA_PARTITION, raw_records.OLD_KEY, raw_records.HEADERS):
        assert block.taken(name, np.arange(3)).null_count == 3
    assert block.slice(1, 2).take(np.array([1])).column(raw_records.RANK).to_pylist() == [1_700_000_000_125_000]


def test_positions_have_the_place_of_the_span_above_them(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"".join(b'{"id": %d}\n' % number for number in range(12_000)))
    spans = [FileSpan(uri_of(str(path)), 0, 0, SPAN_UNIT), FileSpan(uri_of(str(path)), 0, SPAN_UNIT)]
    decode = decoder_of(pipeline_of({"id": "BIGINT"}, format="json", files={"path": "/in"}, kafka=None))
    rows = [row for batch in decode(line_blocks(spans, FileRule())) for row in batch.to_pylist() if row["_topic"]]
    ids = [row["_d0"] for row in sorted(rows, key=lambda row: row["_offset"])]
    assert ids == list(range(12_000))
    assert {row["_offset"] >> 33 for row in rows} == {0, 1}


class Pack:
    """A packer that gives what came to it."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[PackedValue]:
        for block in batches:
            yield 0, 0, pa.py_buffer(b"|".join(block.values(np.arange(block.num_rows))))

    def tally(self, tally: Tally) -> Iterator[PackedValue]:
        yield 0, 0, pa.py_buffer(repr(tally.error).encode())


@pytest.mark.parametrize("takes_losses", [False, True])
def test_a_file_that_is_gone_fails_the_batch_unless_losses_are_taken(tmp_path: Path, takes_losses: bool) -> None:
    (tmp_path / "a.json").write_bytes(b"a\nb")
    spans = tuple(FileSpan(uri_of(f"{tmp_path}/{name}"), 0) for name in ("gone.json", "a.json"))
    given = b"".join(_run(FilePiece(spans, FileRule(takes_losses=takes_losses), _work(), 3)))
    if takes_losses:
        assert given == b"a|b"
    else:
        assert b"gone.json was there when a batch was planned and is gone now" in given


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"a\n" * 5000)[:-9])
    (given,) = _run(FilePiece((FileSpan(uri_of(str(path)), 0),), FileRule(), _work(), 3))
    assert b"a.gz cannot be read: Truncated compressed stream" in given


def test_files_of_a_store_are_read_by_their_uri() -> None:
    store_env("memory://in", {}).file_io.create_exclusive("memory://in/a b.json", b"a\nb")
    (block,) = line_blocks([FileSpan("memory://in/a%20b.json", 0)], FileRule())
    assert block.column(raw_records.TOPIC).to_pylist() == ["memory://in/a%20b.json"] * 2


def test_small_files_of_a_store_are_requested_together(monkeypatch: pytest.MonkeyPatch) -> None:
    env = store_env("memory://many", {})
    env.file_io.create_exclusive("memory://many/large", b"z\n" * 9)
    spans = [FileSpan("memory://many/large", 1)]
    for number in range(40):
        env.file_io.create_exclusive(f"memory://many/{number}", b"%d" % number)
        spans.append(FileSpan(f"memory://many/{number}", 1, is_small=True))
    calls: list[int] = []
    monkeypatch.setattr(Env, "is_remote", property(lambda self: True))

    def together(env: Env, made: Sequence[Callable[[], Any]]) -> list[Any]:
        calls.append(len(made))
        return [call() for call in made]

    monkeypatch.setattr(Env, "together", together)
    assert _values(spans) == [b"z"] * 9 + [b"%d" % number for number in range(40)]
    assert calls == [16, 16, 9]
    with pytest.raises(InvalidRequestError, match="is gone now"):
        _values([FileSpan("memory://many/gone", 1, is_small=True)])


def _values(spans: list[FileSpan], rule: FileRule = FileRule()) -> list[bytes]:  # noqa: B008 - a frozen value
    return [line for block in line_blocks(spans, rule) for line in block.values(np.arange(block.num_rows))]


def _of_span(content: bytes, start: int, end: int | None, separator: bytes | None, part_bytes: int) -> list[bytes]:
    file = io.BytesIO(content)
    file.seek(max(0, start - len(separator or b" ") + 1))
    parts = whole_lines(file.read, start, end, separator, part_bytes)
    return [line for part in parts for line in _split(part, separator)]


def _split(content: bytes, separator: bytes | None) -> list[bytes]:
    if separator is None:
        return content.splitlines()
    lines = content.split(separator)
    return lines if lines[-1] else lines[:-1]


def _work() -> KeptValue[BatchWork]:
    return KeptValue(BatchWork({3: Pack()}, {}))


def _run(piece: FilePiece) -> list[bytes]:
    travelled: FilePiece = pickle.loads(pickle.dumps(piece))
    return [each.column(PACKED)[0].as_py() for each in travelled.run(TaskPlace(Handed()))]
