"""What a commit asks of an object store: how many requests, and how many of them wait for one another.

Counted by a proxy from `write` to the return of `commit`, in a warm session, one bucket, nobody else. What follows
the return (hints, expiry) is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.table import Table
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import Request, StoreProxy, through

DELAY_S = 0.02
"""Makes requests long enough that those which do not wait for one another overlap on a busy machine."""


@dataclass
class Kind:
    """A table, and the requests that its commits may cost at most."""

    requests_max: int
    chain_max: int
    options: dict[str, str] = field(default_factory=dict)
    primary_keys: tuple[str, ...] = ("id",)
    partition_keys: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("APPEND",)


WITHOUT_COMPACTION = {"bucket": "1", "num-sorted-run.compaction-trigger": "100"}
KINDS = {
    "keyed": Kind(9, 5, WITHOUT_COMPACTION),
    "appended": Kind(9, 5, {"bucket": "-1"}, primary_keys=()),
    "partitioned": Kind(9, 5, WITHOUT_COMPACTION, ("id", "p"), ("p",)),
}


@pytest.fixture
def proxy(s3: S3Place, unchecked_claims: None) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        yield proxy


def create(s3: S3Place, proxy: StoreProxy, kind: Kind) -> Table:
    options = {**through(s3, proxy).options, "commit.coordination": "single-writer"}
    return Catalog(s3.root, options=options).create_table(
        "shop.orders",
        schema={"id": "BIGINT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"},
        primary_keys=kind.primary_keys,
        partition_keys=kind.partition_keys,
        options=kind.options,
    )


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "p": ["a"], "v": ["x"]})


def last_commit(table: Table, proxy: StoreProxy, count: int) -> tuple[tuple[Snapshot, ...], list[Request], Any]:
    """The snapshots of the last of some commits, its requests, and those after its return."""
    with table.writer("loader") as writer:
        for number in range(count):
            table.store.env.finish_later()
            proxy.delay_s = DELAY_S if number == count - 1 else 0
            with proxy.counted() as requests:
                writer.write(rows(number))
                snapshots = writer.commit().snapshots
            with proxy.counted() as later:
                table.store.env.finish_later()
    return snapshots, requests, later


@pytest.mark.parametrize("name", KINDS)
def test_requests_of_a_commit(s3: S3Place, proxy: StoreProxy, name: str) -> None:
    kind = KINDS[name]
    snapshots, requests, _ = last_commit(create(s3, proxy, kind), proxy, 4)
    assert [str(snapshot.commit_kind) for snapshot in snapshots] == list(kind.kinds)
    shown = "\n".join(map(str, requests))
    assert len(requests) <= kind.requests_max, shown
    assert proxy.longest_chain(requests) <= kind.chain_max, shown
