"""What `resume` and `resync` find to do. No Spark: the job itself is in tests/integration/sync_deaths.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY, SyncPipelineConfig
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.direct_reads import grouped
from freshet.pipeline.sync.ledger import ACTIVE, APART, RESUMED, WHOLE, LedgerRow, write_rows
from freshet.pipeline.sync.resume import held_back, ranges_between
from tests.pipeline.sync.kit import sync_config

LEDGER = "lake._freshet_ledger_shop"


@pytest.mark.parametrize(
    ("starts", "ends", "expected"),
    [
        ({}, {}, []),
        ({"t": {"0": 5}}, {"t": {"0": 9}}, [("t", 0, 5, 9)]),
        ({"t": {"0": 5}}, {"t": {"0": 5}}, []),
        ({"t": {"0": 5}}, {"t": {"0": 7, "10": 3, "2": 4}}, [("t", 0, 5, 7), ("t", 2, 0, 4), ("t", 10, 0, 3)]),
        ({"a": {"0": 1}}, {"b": {"0": 2}, "a": {"0": 2}}, [("a", 0, 1, 2), ("b", 0, 0, 2)]),
        ({"gone": {"0": 1}}, {}, []),
    ],
)
def test_ranges(
    starts: Mapping[str, Mapping[str, int]],
    ends: Mapping[str, Mapping[str, int]],
    expected: list[tuple[str, int, int, int]],
) -> None:
    assert ranges_between(starts, ends) == tuple(OffsetRange(*each) for each in expected)


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_every_range_is_in_one_group(count: int) -> None:
    ranges = [OffsetRange("t", number, 0, 10 * number) for number in range(20)]
    groups = grouped(ranges, count)
    assert len(groups) == min(count, 20)
    assert sorted(number for group in groups for number in group) == list(range(20))
    assert all(list(group) == sorted(group) for group in groups)
    sizes = [sum(ranges[number].end for number in group) for group in groups]
    if count < 20:
        assert max(sizes) - min(sizes) <= 190
    assert grouped([], count) == ()


class World:
    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(folder)
        config = sync_config()
        table = config.table.model_copy(update={"warehouse": str(folder)})
        self.config: SyncPipelineConfig = config.model_copy(update={"warehouse": str(folder), "table": table})

    def create(self, name: str) -> int:
        table = self.catalog.create_table(
            name, schema={"id": "INT"}, primary_keys=["id"], options={"bucket": "1"}, if_not_exists=True
        )
        created = table.engine.created_ms()
        assert created is not None
        return created

    def say(self, *rows: LedgerRow) -> None:
        ledger = self.catalog.create_table(
            LEDGER, schema=LEDGER_COLUMNS, primary_keys=[LEDGER_KEY], options={"bucket": "1"}, if_not_exists=True
        )
        write_rows(ledger, "shop", rows)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def refused(world: World, name: str, message: str, *, anew: bool = False) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        held_back(world.config, name, anew=anew)


def test_a_pipeline_that_has_not_run(world: World) -> None:
    refused(world, "lake.a", "'shop' has no ledger lake._freshet_ledger_shop: it has not run yet", anew=True)
    world.say(LedgerRow("lake.a", APART, since_batch=0))
    refused(world, "lake.a", "has not finished a batch yet", anew=True)


def test_tables_that_it_does_not_write(world: World) -> None:
    world.say(LedgerRow(WHOLE, batch=3), LedgerRow("lake.a", batch=3), LedgerRow("lake.b", batch=1))
    for name in ("lake.c", WHOLE, LEDGER):
        refused(world, name, "writes no table .*; its tables are: lake.a, lake.b", anew=True)


@pytest.mark.parametrize("state", [ACTIVE, RESUMED])
def test_a_table_that_is_not_set_apart_can_only_be_read_anew(world: World, state: str) -> None:
    created_ms = world.create("lake.a")
    row = LedgerRow("lake.a", state, batch=3, created_ms=created_ms)
    world.say(LedgerRow(WHOLE, batch=3), row)
    refused(world, "lake.a", rf"table lake.a is not set apart \({state}\)")
    assert held_back(world.config, "lake.a", anew=True) == row


def test_a_table_that_is_set_apart(world: World) -> None:
    created_ms = world.create("lake.a")
    row = LedgerRow("lake.a", APART, batch=3, created_ms=created_ms, since_batch=4, since_offsets='{"t":{"0":5}}')
    world.say(LedgerRow(WHOLE, batch=7), row)
    lost = "lake.a does not hold batch 3 of pipeline 'shop', .* restored from a backup or rolled back.* freshet resync"
    refused(world, "lake.a", f"{lost}.* rows of batches 0 to 3 are to be left out.* --accept-loss-of 0..3")
    committer = world.catalog.table("lake.a").engine.committer("shop")
    committer.commit(2, ())
    refused(world, "lake.a", f"{lost}.* rows of batch 3 are to be left out.* --accept-loss-of 3..3")
    assert held_back(world.config, "lake.a", anew=True) == row
    committer.commit(3, ())
    assert held_back(world.config, "lake.a", anew=False) == row


def test_a_table_whose_earlier_rows_are_gone_is_read_anew(world: World) -> None:
    created_ms = world.create("lake.a")
    world.say(LedgerRow(WHOLE, batch=7), LedgerRow("lake.a", APART, batch=3, created_ms=created_ms - 1, since_batch=4))
    refused(world, "lake.a", "was dropped since batch 3, .* freshet resync FILE --table lake.a")
    world.catalog.drop_table("lake.a")
    refused(world, "lake.a", "was dropped since batch 3")
    assert held_back(world.config, "lake.a", anew=True).state == APART


def test_a_table_that_was_set_apart_before_it_had_rows(world: World) -> None:
    world.say(LedgerRow(WHOLE, batch=7), LedgerRow("lake.a", APART, since_batch=4))
    assert held_back(world.config, "lake.a", anew=False).since_batch == 4
