"""Records of 1 KB, 100 KB and 5 MB, with default settings: memory is bounded on either engine.

They are more than Spark's default heap of a gigabyte, and would be a single poll, were it not for their sizes. What
soaks try on both engines, the local one does in seconds.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.catalog import Catalog
from tests.kit.sized_records import SizedRecords, produce_sized
from tests.kit.sized_run import PYTHON_MB, run_sized

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PARTS = [
    SizedRecords(2000, 1000, is_easy=False),
    SizedRecords(9000, 100_000, is_easy=True, first=2000),
    SizedRecords(60, 5_000_000, is_easy=True, first=11_000),
]
COUNT = 11_060
MIXED_MB = 500
"""A flush cuts its rows by their mean size: those of 5 MB of a bucket lie behind each other and may be one piece."""


def test_a_run_that_ran_out_of_memory_goes_on_in_smaller_pieces(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    topic = f"sized-{uuid.uuid4()}"
    produce_sized(kafka_broker, topic, PARTS)
    before = run_sized(kafka_broker, topic, tmp_path, max_poll_records="16384")
    assert before.code != 0, "a poll of everything was to end it"
    assert (tmp_path / "checkpoint" / "offsets" / "0").exists(), "the batch was planned"
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
    again = run_sized(kafka_broker, topic, tmp_path)
    again.check_memory(PYTHON_MB + MIXED_MB)
    assert f"{COUNT:,} applied" in again.output, again.output
    rows = Catalog(str(tmp_path / "warehouse")).table("a.sized").scan(columns=["id"]).to_arrow()
    assert sorted(rows.column("id").to_pylist()) == list(range(COUNT))


@pytest.mark.parametrize(
    "records",
    [SizedRecords(*size, is_easy) for size in ((14_000, 100_000), (300, 5_000_000)) for is_easy in (False, True)],
    ids=lambda each: each.name,
)
def test_memory_without_spark(tmp_path: Path, kafka_broker: ForeignBroker, records: SizedRecords) -> None:
    topic = f"sized-{uuid.uuid4()}"
    produce_sized(kafka_broker, topic, [records])
    ran = run_sized(kafka_broker, topic, tmp_path, on="local")
    ran.check_memory()
    assert ran.jvm_mb == 0
    assert Catalog(str(tmp_path / "warehouse")).table("a.sized").scan().count() == records.count
    kafka_broker.delete_topic(topic)
