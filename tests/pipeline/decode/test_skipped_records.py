"""Records that are named to be skipped become dead letters that nobody looks into."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.decode.careful import CarefulReader
from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.decoder import SKIPPED, RecordDecoder
from freshet.pipeline.exceptions import PipelineFailedError
from tests.pipeline.records import Record, change, decoder_of, pipeline_of, run
from tests.pipeline.sync.change_records import ITEMS, KNOWN, ORDERS, USERS, plain
from tests.pipeline.sync.kit import many_plan, sync_config
from tests.pipeline.sync.kit import run as run_many

TOPIC = "shop.public.orders"
DEAD = f"dead None: {SKIPPED}"


def _places(*offsets: int, topic: str = TOPIC) -> list[RecordPlace]:
    return [RecordPlace(topic, 0, offset) for offset in offsets]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("debezium-json", lambda row: change("c", None, row)),
        ("debezium-unwrapped", lambda row: row),
        ("json", lambda row: row),
        ("canal-json", lambda row: {"data": [row], "type": "INSERT", "table": "t", "database": "d", "isDdl": False}),
        ("maxwell-json", lambda row: {"data": row, "type": "insert", "table": "t", "database": "d", "ts": 1}),
    ],
)
def test_of_one_table(form: str, value: Any) -> None:
    config = pipeline_of({"id": "BIGINT", "n": "INT"}, format=form, on_unknown_field="add")
    records = [Record(value({"id": number, "n": number, "more": 1})) for number in range(5)]
    found = run(decoder_of(config.skipping(_places(1, 3))), records)
    assert found.shown == ["+I(0, 0)", DEAD, "+I(2, 2)", DEAD, "+I(4, 4)"]
    assert found.tally.read == 5
    (letter,) = found.rows[3]
    assert (letter["_topic"], letter["_offset"]) == (TOPIC, 3)
    assert letter["_raw_value"] is not None
    only = run(decoder_of(config.skipping(_places(0))), records[:1])
    assert (only.shown, only.tally.read) == ([DEAD], 1)


def test_other_places_are_read() -> None:
    config = pipeline_of({"id": "BIGINT"}).skipping([RecordPlace("other", 0, 0), RecordPlace(TOPIC, 1, 0)])
    assert run(decoder_of(config), [change("c", None, {"id": 1})]).shown == ["+I(1)"]


def test_a_record_that_stops_the_run_is_got_past() -> None:
    config = pipeline_of({"id": "BIGINT"}, on_unknown_field="fail")
    records = [change("c", None, {"id": 0}), change("c", None, {"id": 1, "new": 5}), change("c", None, {"id": 2})]
    decoder: RecordDecoder = decoder_of(config)
    with pytest.raises(PipelineFailedError):
        run(decoder, records)
    assert run(decoder_of(config.skipping(_places(1))), records).shown == ["+I(0)", DEAD, "+I(2)"]


def test_of_many_tables() -> None:
    """One of a table that is known, one of a table that is new: it is not described."""
    config = sync_config()
    records = [plain(ORDERS, {"id": 1, "n": 2}), plain(ITEMS, {"id": 1}), plain(USERS, {"id": 2, "name": "x"})]
    skipped = config.skipping([RecordPlace(ORDERS, 0, 0), RecordPlace(ITEMS, 0, 1)])
    found = run_many(many_plan(skipped, KNOWN), records)
    assert (found.texts(0), found.texts(1), found.texts(2)) == ([DEAD, DEAD], [], ["+I(2, x)"])
    assert not found.seen
    assert found.tally.read == 3


@pytest.mark.parametrize("text", ["", "t/0", "t/0/-1", "t/x/1", "a b/0/1", "t/0/" + "9" * 30, "t/0/1/2"])
def test_a_place_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="write topic, partition and offset"):
        RecordPlace.parse(text)
    assert str(RecordPlace.parse("shop.a-b_c/3/17")) == "shop.a-b_c/3/17"


def test_an_error_that_nobody_foresaw_names_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that raises it among a thousand; several tables too."""
    read = CarefulReader.read

    def broken(self: CarefulReader, record: RawRecord) -> Any:
        if b"unforeseen" in (record.value or b""):
            raise LookupError("out of cheese")
        return read(self, record)

    monkeypatch.setattr(CarefulReader, "read", broken)
    records: list[Any] = [change("c", None, {"id": number}) for number in range(1000)]
    records[700] = b'{"unforeseen'
    config = pipeline_of({"id": "BIGINT"})
    with pytest.raises(
        PipelineFailedError, match=f"out of cheese; .* record {TOPIC}/0/700, and --skip-record {TOPIC}/0/700"
    ):
        run(decoder_of(config), records)
    assert run(decoder_of(config.skipping(_places(700))), records).shown[700] == DEAD
