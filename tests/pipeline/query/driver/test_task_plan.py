"""How many tasks write a table, and how many assigners its partitions have."""

from __future__ import annotations

from itertools import product

import pytest

from freshet.pipeline.query.driver.task_plan import TaskPlan
from freshet.storage.model.data_type import DataField, parse_data_type
from freshet.storage.model.schema import TableSchema
from freshet.storage.options import CoreOptions

FIELDS = tuple(DataField(number, name, parse_data_type("INT NOT NULL")) for number, name in enumerate("pkq"))


def test_task_count_is_bounded_by_buckets_and_by_tasks_max() -> None:
    def count(bucket: str = "4", partitions: tuple[str, ...] = (), tasks_max: int = 200, parallelism: int = 2) -> int:
        schema = TableSchema(0, FIELDS, 2, partitions, ("p", "k"), {"bucket": bucket})
        options = CoreOptions.parse({"bucket": bucket}, has_primary_key=True)
        return TaskPlan(tasks_max, parallelism).count(schema, options)

    assert count() == 4
    assert count(tasks_max=2) == 2
    assert count(partitions=("p",)) == 8
    assert count(partitions=("p",), tasks_max=3) == 3
    assert count("-1") == count("-2") == 2
    assert count("-1", parallelism=0) == 1


@pytest.mark.parametrize("tasks_max", [1, 3, 7, 200])
@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("partitions", [(), ("p",), ("q",)])
def test_assigners_of_dynamic_buckets(tasks_max: int, parallelism: int, partitions: tuple[str, ...]) -> None:
    """Tasks are a multiple of the assigners of each partition, and no assigner is without a bucket of its own."""
    schema = TableSchema(0, FIELDS, 2, partitions, ("p", "k"), {"bucket": "-1"})
    plan = TaskPlan(tasks_max, parallelism)
    for initial, largest in product([None, 1, 2, 3, 5, 100], [-1, 1, 2, 6, 100]):
        options = {"bucket": "-1", "dynamic-bucket.max-buckets": str(largest)}
        if initial is not None:
            options["dynamic-bucket.initial-buckets"] = str(initial)
        assigners, tasks = plan.assigners(schema, CoreOptions.parse(options, has_primary_key=True))
        bounds = [tasks_max, 4 * parallelism if partitions else parallelism]
        most = min([*bounds, largest] if largest > 0 else bounds)
        if schema.keys_cross_partitions:
            assert tasks == most
            assert assigners == min(initial or parallelism, tasks_max), "each is a share of the keys"
        else:
            assert assigners == min(initial or most, most)
            assert tasks % assigners == 0
            assert most - assigners < tasks <= most
            assert largest < 0 or assigners <= largest
