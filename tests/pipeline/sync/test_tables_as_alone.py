"""Each table of a stream gets what its own decoder gives for its records alone, whatever their topics had before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.decode.decoder import BlockDecoder, RecordDecoder
from freshet.pipeline.sync import many_decoder, record_sorter
from freshet.pipeline.sync.record_sorter import RecordSorter
from freshet.pipeline.sync.table_decoding import ManyPlan, TableDecoding
from tests.pipeline.records import Record, change
from tests.pipeline.records import run as run_alone
from tests.pipeline.sync.change_records import KEY, KNOWN, ORDERS, USERS, assert_counted, plain, typed
from tests.pipeline.sync.kit import many_plan, run, source_table, sync_config


@pytest.fixture(scope="module")
def config() -> Any:
    return sync_config()


_ODD: Sequence[Record] = (
    plain(ORDERS, {"id": 1, "n": "x"}), Record(change("c", None, None), KEY, ORDERS), Record(change("x"), KEY, ORDERS),
    Record(change("u", {"id": 1}, {"id": 2}), KEY, ORDERS), Record(change("m"), KEY, ORDERS),
    typed(ORDERS, {"id": 1, "n": 5}, "id", "n"), typed(ORDERS, {"id": 1, "n": 5}, "id", "n", op="d"),
    plain(ORDERS, {"id": None}),
)  # fmt: skip
_CHOICES = st.sampled_from([*_ODD, plain(ORDERS, {"id": 3, "n": 1}), plain(USERS, {"id": 3, "name": "x"}),
                            plain(USERS, {"id": 3}, "d"), Record(None, KEY)])  # fmt: skip


@pytest.mark.dear("each table is decoded twice")
@given(st.lists(_CHOICES, max_size=40))
def test_each_table_gets_what_its_own_decoder_gives(records: list[Record]) -> None:
    """The oracle is the decoder of one table, over its records alone."""
    assert_as_alone(many_plan(sync_config(), KNOWN), [], records)


def assert_as_alone(plan: ManyPlan, before: list[Record], records: list[Record]) -> None:
    """`before` is a block of its own."""
    found = run(plan, before, records)
    whole = [*before, *records]
    assert found.tally.error is None and found.tally.read == found.record_count == len(whole)
    skipped = sum(record.value is None for record in whole)
    for name in (ORDERS, USERS):
        decoding = plan.tables[source_table(name)]
        assert isinstance(decoding, TableDecoding)
        alone = run_alone(RecordDecoder(decoding.plan), [each for each in whole if _table_of(each) == name])
        assert found.texts(decoding.index) == [text for text in alone.shown if text]
        skipped += sum(alone.tally.skipped.values())
    assert sum(found.tally.skipped.values()) == skipped


def _table_of(record: Record) -> str | None:
    tree = json.loads(record.value) if isinstance(record.value, bytes) else record.value
    if tree is None:
        return None
    source = tree.get("payload", tree)["source"]
    return f"{source['db']}.{source['schema']}.{source['table']}"


# --- topics that have had one table -----------------------------------------------------------------------------------

_STRAYS = (
    plain(ORDERS, {"id": 4, "n": "x"}), Record(change("c", None, {"id": 5, "n": 6}), KEY, USERS),
    Record(change("d", {"id": 3}, None), KEY, USERS), Record(change("c", None, {"id": 8, "n": "y"}), KEY, USERS),
    Record(change("c", None, {"id": 9, "name": "z"}, table="users"), KEY, ORDERS),
    Record(change("u", {"id": 1, "name": "z"}, {"id": 9, "name": "z"}, table="users"), KEY, ORDERS),
)  # fmt: skip


@pytest.mark.dear("each table is decoded twice")
@given(st.lists(st.one_of(_CHOICES, st.sampled_from(_STRAYS)), max_size=60))
def test_records_are_taken_by_the_table_that_they_name(records: list[Record]) -> None:
    """What the topics have had before is no more than a guess."""
    many_decoder._shared.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_sorter, "SORTED_MIN", 1)
        assert_as_alone(many_plan(sync_config(), KNOWN), BEFORE, records)


@pytest.fixture
def presuming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each topic is known once a record of it was sorted, and none is at first."""
    many_decoder._shared.cache_clear()
    monkeypatch.setattr(record_sorter, "SORTED_MIN", 1)


BEFORE = [plain(ORDERS, {"id": 3, "n": 1}), plain(USERS, {"id": 3, "name": "x"})]


@pytest.mark.usefixtures("presuming")
def test_records_are_sorted_until_their_topics_are_known(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sort, counts = RecordSorter.sort, list[int]()

    def counted(self: RecordSorter, block: Any, indexes: Any) -> Any:
        counts.append(len(indexes))
        return sort(self, block, indexes)

    monkeypatch.setattr(RecordSorter, "sort", counted)
    plan = many_plan(config, KNOWN)
    run(plan, BEFORE)
    assert counts == [2]  # the other form of the records finds them known
    run(plan, BEFORE * 10)
    assert counts == [2]
    run(plan, [*BEFORE * 10, _STRAYS[1]])
    assert counts == [2, 1, 11], "a topic that has had two tables is sorted from then on"
    run(plan, [*BEFORE, plain(ORDERS, {"id": "x", "n": 1})])
    assert counts[3:] == [2, 2], "one that has a value which does not fit is not"


@pytest.mark.usefixtures("presuming")
def test_topics_whose_records_are_wrapped_from_now_on_are_sorted(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = many_plan(config, KNOWN)
    run(plan, BEFORE)
    wrapped = [typed(ORDERS, {"id": number, "n": 1}, "id", "n") for number in range(9)]
    assert_counted(run(plan, wrapped), 9)
    monkeypatch.setattr(BlockDecoder, "decode_presumed", None)
    found = run(plan, [*wrapped, plain(ORDERS, {"id": 9, "n": 1})])
    assert_counted(found, 10)


def test_a_topic_is_known_after_some_records(config: Any) -> None:
    many_decoder._shared.cache_clear()
    records, plan = [plain(ORDERS, {"id": 3, "n": 1})] * 2500, many_plan(config, KNOWN)
    for count in (5000, 10_000, 10_000):  # `run` decodes them twice
        run(plan, records)
        assert many_decoder._shared(plan.ledger).sorter._sorted[ORDERS] == count


@pytest.mark.usefixtures("presuming")
def test_a_new_field_is_one_of_the_table_that_its_record_names(config: Any) -> None:
    guessing = sync_config(schema="infer")
    stray = Record(change("c", None, {"id": 9, "note": "z"}, table="users"), KEY, ORDERS)
    found = run(many_plan(guessing, KNOWN), BEFORE, [plain(ORDERS, {"id": 1, "note": 7}), stray, *BEFORE * 20])
    assert {name: each.columns for name, each in found.seen.items()} == {
        ORDERS: {"note": "BIGINT"}, USERS: {"note": "STRING"},
    }  # fmt: skip
    found = run(many_plan(config, KNOWN), BEFORE, [plain(ORDERS, {"id": 1, "n": 2, "note": 7}), *BEFORE])
    assert not found.seen and found.tally.notes, "without types nothing is guessed"
    assert_counted(found, 5)
