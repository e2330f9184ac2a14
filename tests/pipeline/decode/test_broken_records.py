"""A broken record costs its own row, whatever is wrong with it and however many there are."""

from __future__ import annotations

import json

import pytest

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.raw_records import KEY
from tests.pipeline.records import change, decoded, decoder_of, pipeline_of, raw_batch, run

COLUMNS = {"id": "BIGINT", "s": "STRING", "d": "DOUBLE", "n": "DECIMAL(38,20)"}
NO_JSON = "dead None: the value is not JSON of the form expected"


def _envelope(row: bytes) -> bytes:
    return b'{"before":null,"after":' + row + b',"op":"c"}'


BROKEN = [
    ("no JSON", b"{broken", NO_JSON),
    ("cut off", b'{"op":"c","after":{"id":1', NO_JSON),
    ("a raw line break in a value", _envelope(b'{"id":1,"s":"a\nb"}'), NO_JSON),
    ("not UTF-8 in a value", _envelope(b'{"id":1,"s":"\xff"}'), NO_JSON),
    ("not UTF-8 in a field that nothing reads", _envelope(b'{"id":1,"q":"\xff"}'), NO_JSON),
    ("not UTF-8 next to the row", b'{"after":{"id":1},"op":"c","q":"\xff"}', NO_JSON),
    ("nested too deep", _envelope(b'{"id":1,"s":' + b"[" * 1200 + b"]" * 1200 + b"}"), NO_JSON),
    ("nested deep", _envelope(b'{"id":1,"s":' + b"[" * 600 + b"]" * 600 + b"}"),
     f"+I(1, {'[' * 600 + ']' * 600}, None, None)"),
    ("nested deep in a number", _envelope(b'{"id":1,"n":' + b'{"a":' * 600 + b"1" + b"}" * 601),
     "dead n: the value of field n does not fit DECIMAL(38, 20) (exactly)"),
    ("a number beyond a double", _envelope(b'{"id":1,"d":1e400}'), "dead d: the value of field d does not fit DOUBLE"),
    ("half a character", _envelope(b'{"id":1,"s":"\\ud800"}'), "dead s: the value of field s does not fit STRING"),
    ("half a character that nothing reads", _envelope(b'{"id":1,"q":"\\ud800"}'), "+I(1, None, None, None)"),
    ("two fields of one name", _envelope(b'{"id":1,"s":"first","id":2,"s":"last"}'), "+I(2, last, None, None)"),
    ("an escaped name", _envelope(b'{"\\u0069d":1}'), "+I(1, None, None, None)"),
    ("an exact number", _envelope(b'{"id":1,"n":123456789012345678.12345678901234567890}'),
     "+I(1, None, None, 123456789012345678.12345678901234567890)"),
    ("a number that is none", _envelope(b'{"id":1,"d":NaN}'), NO_JSON),
    ("a leading zero", _envelope(b'{"id":01}'), NO_JSON),
]  # fmt: skip


@pytest.mark.parametrize(("record", "expected"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
@pytest.mark.parametrize("times", [1, 30])
def test_a_record_of_its_own_kind_among_good_ones(record: bytes, expected: str, times: int) -> None:
    good = change("c", None, {"id": 7, "s": "x"})
    found = decoded(pipeline_of(COLUMNS), [good, *([record] * times), good] * 5)
    assert found.shown == ["+I(7, x, None, None)", *([expected] * times), "+I(7, x, None, None)"] * 5


@pytest.mark.parametrize("share", [100, 10])
def test_many_records_with_some_broken_ones(share: int) -> None:
    good = [change("c", None, {"id": key, "s": "x"}) for key in range(2000)]
    kinds = [record for _, record, expected in BROKEN if expected.startswith("dead")]
    records = [kinds[key // share % len(kinds)] if key % share == 0 else each for key, each in enumerate(good)]
    found = decoded(pipeline_of(COLUMNS), records)
    for key, rows in enumerate(found.rows):
        assert len(rows) == 1
        assert (rows[0]["_tag"], rows[0]["_d0"]) == ((1, None) if key % share == 0 else (0, key))


def test_a_value_of_17_million_characters() -> None:
    records = [change("c", None, {"id": key, "s": "x" * (17_000_000 if key == 1 else 1)}) for key in range(3)]
    found = decoded(pipeline_of(COLUMNS), records)
    assert [len(rows[0]["_d1"]) for rows in found.rows] == [1, 17_000_000, 1]


def test_a_source_with_fields_of_ever_new_names_is_read_on() -> None:
    records = [change("c", None, {"id": key, f"new {key}": 1}) for key in range(700)]
    decoder = decoder_of(pipeline_of(COLUMNS))
    found = run(decoder, records)
    assert [rows[0]["_d0"] for rows in found.rows] == list(range(700))
    assert len(found.tally.notes) == 700
    assert set(found.tally.notes.values()) == {1}


def test_what_was_learned_of_one_stream_serves_the_next() -> None:
    """Forms change from block to block; nothing learned earlier makes a later record wrong."""
    decoder = RecordDecoder(decoder_of(pipeline_of(COLUMNS)).plan)
    for value, expected in (("x", "x"), (5, "5"), ({"k": 1.50}, '{"k":1.5}'), (None, "None"), ("x", "x")):
        found = run(decoder, [change("c", None, {"id": 1, "s": value, "q": value})] * 50)
        assert found.shown == [f"+I(1, {expected}, None, None)"] * 50
        assert found.tally.notes == {"unknown field q": 50}


def test_a_stream_without_records_gives_nothing_and_one_of_skipped_records_its_tally() -> None:
    decoder = decoder_of(pipeline_of(COLUMNS))
    assert list(decoder(iter([]))) == []
    assert list(decoder(iter([raw_batch([])]))) == []
    (tally,) = decoder(iter([raw_batch([None, None])]))
    value = json.loads(tally.to_pylist()[0]["_raw_value"])
    assert len(value.pop("times")) == 2
    assert value == {"read": 2, "skipped": {"tombstone": 2}, "notes": {}}


def test_a_tally_has_the_sizes_of_the_records_that_were_read() -> None:
    decoder = decoder_of(pipeline_of(COLUMNS))
    batches = [raw_batch([b"{}", b"x" * 1000]), raw_batch([b"y" * 400, b"z" * 600]), raw_batch([None])]
    *_, last = decoder(iter(batches))
    tally = Tally.decode(last.to_pylist()[0]["_raw_value"])
    key_bytes = len(raw_batch([b"{}"]).column(KEY)[0].as_py() or b"")
    assert tally.read == 5
    assert tally.sizes == RecordSizes((2 + 1000) // 2 + key_bytes, 1000 + key_bytes)
