"""What the demo asks itself before it puts a checkpoint back, and before it ends."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.jobs.demo.live import Live
from freshet.jobs.demo.reader import TABLE, adds
from freshet.jobs.demo.shop import Shop
from freshet.storage.catalog import Catalog


def test_what_rows_add_up_to() -> None:
    batch = pa.record_batch({"changed": [5, 5, 7, 9], "_ROW_KIND": ["+I", "-D", "-U", "+U"]})
    assert adds(batch) == (0, 2)
    assert adds(batch.slice(0, 1)) == (1, 5)


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """After the kill of a writer that had committed batch 0, with change 5 as its last, and planned batch 1."""
    warehouse = tmp_path / "warehouse"
    catalog = Catalog(str(warehouse))
    schema = {"order_id": "BIGINT", "changed": "BIGINT"}
    orders = catalog.create_table(
        TABLE, schema=schema, primary_keys=["order_id"], options={"bucket": "1", "changelog-producer": "lookup"}
    )
    catalog.create_table("shop.dead_letters", schema={"reason": "STRING"})
    with orders.writer("demo-orders") as writer:
        writer.write(pa.table({"order_id": [1, 2], "changed": [4, 5]}))
        writer.commit(0)
    offsets = warehouse / "_checkpoints" / "demo-orders" / "offsets"
    offsets.mkdir(parents=True)
    for batch in range(2):
        (offsets / str(batch)).touch()
    return Live(tmp_path, "nowhere:9", Shop(), [], "spark")


@pytest.mark.parametrize(("shown", "open_batch"), [(5, None), (6, 1)])
def test_a_batch_of_which_nothing_was_shown_is_not_put_back(
    live: Live, tmp_path: Path, shown: int, open_batch: int | None
) -> None:
    live._newest["speculative"] = shown
    assert live._put_back() == open_batch
    left = [each.name for each in (tmp_path / "warehouse" / "_checkpoints" / "demo-orders" / "offsets").iterdir()]
    assert sorted(left) == (["0", "1"] if open_batch is None else ["0"])
