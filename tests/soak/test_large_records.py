"""Memory of `freshet run` with default settings, for large records that are hard and easy to compress."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.catalog import Catalog
from tests.kit.sized_records import SizedRecords, produce_sized
from tests.kit.sized_run import run_sized
from tests.soak.counts import LARGE_RECORDS, VERY_LARGE_RECORDS, Count

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", ["spark", "local"])
@pytest.mark.parametrize("is_easy", [False, True], ids=["hard", "easy"])
@pytest.mark.parametrize(("count", "size_bytes"), [(LARGE_RECORDS, 100_000), (VERY_LARGE_RECORDS, 5_000_000)])
def test_memory_is_bounded(
    count: Count, size_bytes: int, is_easy: bool, engine: str, tmp_path: Path, kafka_broker: ForeignBroker
) -> None:
    topic = f"sized-{uuid.uuid4()}"
    records = SizedRecords(count.now(), size_bytes, is_easy)
    produce_sized(kafka_broker, topic, [records])
    ran = run_sized(kafka_broker, topic, tmp_path, on=engine)
    ran.check_memory()
    assert Catalog(str(tmp_path / "warehouse")).table("a.sized").scan().count() == records.count
