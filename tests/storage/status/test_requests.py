"""What a look costs an S3 server, in requests: few for a table, however many snapshots and buckets it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from freshet import Catalog
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import StoreProxy, through

TABLES = 6
COMMITS = 8
SNAPSHOTS = 10
"""Those commits, and two compactions."""


@pytest.mark.slow
def test_looks_cost_few_requests(versitygw: S3Place) -> None:
    made = Catalog(versitygw.root, options=versitygw.options)
    for number in range(TABLES):
        table = made.create_table(
            f"shop.t{number}", schema={"id": "INT", "v": "STRING"}, primary_keys=["id"], options={"bucket": "2"}
        )
        with table.writer("writer") as writer:
            for _ in range(1 if number else COMMITS):
                writer.write([{"id": key, "v": "a"} for key in range(20)])
                writer.commit()
    with StoreProxy(versitygw.endpoint) as proxy:

        def requests_of(look: Callable[[Catalog], object]) -> int:
            place = through(versitygw, proxy)
            catalog = Catalog(place.root, options={**place.options, "local-cache.enabled": "false"})
            proxy.requests.clear()
            look(catalog)
            assert {each.method for each in proxy.requests} <= {"GET", "HEAD"}, "a look writes nothing"
            return len(proxy.requests)

        found = {
            "opening": requests_of(lambda catalog: catalog.table("shop.t0")),
            "warehouse": requests_of(lambda catalog: catalog.status()),
            "table": requests_of(lambda catalog: catalog.table("shop.t0").status()),
            "doctor": requests_of(lambda catalog: catalog.table("shop.t0").doctor()),
        }
    assert found["warehouse"] <= 4 + TABLES * (found["opening"] + 4)
    assert found["table"] <= found["opening"] + SNAPSHOTS + 20
    assert found["doctor"] <= found["table"] + 25
