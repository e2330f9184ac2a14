"""What a commit asks of an object store: how many requests, and how many of them wait for one another.

Counted by a proxy from `write` to the return of `commit`, in a warm session, one bucket, nobody else. What follows
the return (hints, expiry) is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
    "compacted": Kind(15, 9, {"bucket": "1", "full-compaction.delta-commits": "1"}, kinds=("APPEND", "COMPACT")),
    "with a changelog": Kind(18, 9, {"bucket": "1", "changelog-producer": "lookup"}, kinds=("APPEND", "COMPACT")),
}
"""A compaction reads nothing where this session has written what it merges; a changelog is three files more."""


@pytest.fixture
def proxy(s3: S3Place, unchecked_claims: None) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        yield proxy


def create(s3: S3Place, proxy: StoreProxy, kind: Kind) -> Table:
    options = through(s3, proxy).options
    return Catalog(s3.root, options=options).create_table(
        "shop.orders",
        schema={"id": "BIGINT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"},
        primary_keys=kind.primary_keys,
        partition_keys=kind.partition_keys,
        options=kind.options,
    )


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "p": ["a"], "v": ["x"]})


def follows_the_return(request: Request) -> bool:
    """Hints, and what expiry looks at: it may begin before `commit` has returned to us."""
    return request.key.endswith(("/LATEST", "/EARLIEST")) or "consumer" in str(request)


def last_commit(
    table: Table, proxy: StoreProxy, count: int
) -> tuple[tuple[Snapshot, ...], list[Request], list[Request]]:
    """The snapshots of the last of some commits, its requests, and those after its return."""
    with table.writer("loader") as writer:
        for number in range(count):
            table.store.env.finish_later()
            proxy.delay_s = DELAY_S if number == count - 1 else 0
            with proxy.counted() as requests:
                writer.write(rows(number))
                snapshots = writer.commit().snapshots
            requests = [request for request in requests if not follows_the_return(request)]
    return snapshots, requests


@pytest.mark.few(2)
@pytest.mark.parametrize("name", KINDS)
def test_requests_of_a_commit(s3: S3Place, proxy: StoreProxy, name: str) -> None:
    kind = KINDS[name]
    snapshots, requests = last_commit(create(s3, proxy, kind), proxy, 4)
    assert [str(snapshot.commit_kind) for snapshot in snapshots] == list(kind.kinds)
    shown = "\n".join(map(str, requests))
    assert len(requests) <= kind.requests_max, shown
    assert proxy.longest_chain(requests) <= kind.chain_max, shown


def test_the_hint_is_written_once_a_second_and_at_the_end(s3: S3Place, proxy: StoreProxy) -> None:
    table = create(s3, proxy, KINDS["keyed"])
    proxy.clear()
    with table.writer("loader") as writer:
        snapshots = []
        for number in range(5):
            writer.write(rows(number))
            snapshots += writer.commit().snapshots
    hints = [request for request in proxy.requests if request.key.endswith("LATEST") and request.method == "PUT"]
    seconds = {snapshot.time_ms // 1000 for snapshot in snapshots}
    assert 1 <= len(hints) <= len(seconds) + 1, "one for each second, and that of the end"
    assert table.store.snapshots.hints()[table.store.paths.latest_hint] == snapshots[-1].id
