"""Apache Paimon's JVM on S3 without a lock, next to Freshet: its copy goes over what a conditional put has won.

The JVM's commit is stopped between its look (there is no snapshot of the id) and its copy to that name, by a proxy that
holds the request; this is the race that `commit.coordination` is about.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from freshet import Catalog, InvalidRequestError, Table
from freshet.storage.exceptions import LostCommitError
from tests.kit.paimon_catalog import PaimonCatalog
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import Request, StoreProxy, through

pytestmark = pytest.mark.slow

COLUMNS = {"id": "BIGINT", "v": "STRING"}


@pytest.fixture
def proxy(versitygw: S3Place) -> Iterator[StoreProxy]:
    with StoreProxy(versitygw.endpoint) as made:
        yield made


@contextmanager
def jvm_at(place: S3Place) -> Iterator[PaimonCatalog]:
    """The warehouse as a catalog of the JVM. It would delete markers of folders after each put: with versitygw that
    fails, and it tries again for two minutes."""
    own = {"s3.region": "us-east-1", "s3.directory.marker.retention": "keep"}
    options = {"metastore": "filesystem", "warehouse": f"{place.root}/w", **place.store_options, **own}
    with PaimonJudge.start(more_jars=["paimon-s3"]) as judge:
        yield PaimonCatalog(judge, options)


@pytest.fixture
def jvm(versitygw: S3Place) -> Iterator[PaimonCatalog]:
    with jvm_at(versitygw) as catalog:
        yield catalog


@pytest.fixture
def proxied_jvm(versitygw: S3Place, proxy: StoreProxy) -> Iterator[PaimonCatalog]:
    """It reaches the bucket through the proxy, Freshet directly."""
    with jvm_at(through(versitygw, proxy)) as catalog:
        yield catalog


def opened(place: S3Place, **options: str) -> Table:
    return Catalog(f"{place.root}/w", options=place.options | options).table("shop.orders")


def make_table(place: S3Place) -> Table:
    return Catalog(f"{place.root}/w", options=place.options).create_table(
        "shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1, "write-only": True}
    )


def put(table: Table, user: str, *ids: int) -> None:
    with table.writer(user) as writer:
        writer.write([{"id": number, "v": "ours"} for number in ids])
        writer.commit()


def held(place: S3Place) -> dict[int, str]:
    return {row["id"]: row["v"] for row in opened(place).scan().to_arrow().to_pylist()}


def copy_of(snapshot_id: int):  # type: ignore[no-untyped-def]
    def fits(request: Request) -> bool:
        return request.key.endswith(f"/snapshot/snapshot-{snapshot_id}") and "x-amz-copy-source" in request.headers

    return fits


def test_its_copy_over_our_snapshot_is_found_named_and_repaired(
    versitygw: S3Place, proxy: StoreProxy, proxied_jvm: PaimonCatalog
) -> None:
    table = make_table(versitygw)
    writer = table.writer("loader")
    writer.write([{"id": 1, "v": "ours"}])
    writer.commit()

    held_copy = proxy.hold(copy_of(2), times=1)
    theirs = proxied_jvm.table("shop.orders")
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(theirs.write, [(100, "theirs")], user="jvm")
        try:
            held_copy.arrived()
            writer.write([{"id": 2, "v": "ours"}, {"id": 3, "v": "ours"}])
            [won] = writer.commit().snapshots
            assert won.id == 2
            assert held(versitygw) == {1: "ours", 2: "ours", 3: "ours"}, "our conditional put has won"
        finally:
            held_copy.release()
        answer = commit.result(timeout=300)
    assert answer["latest"] == 2, "and the JVM's copy went over it: both were told that they have committed"
    assert held(versitygw) == {1: "ours", 100: "theirs"}

    writer.write([{"id": 4, "v": "ours"}])
    with pytest.raises(LostCommitError) as caught:
        writer.commit()
    assert (caught.value.snapshot_id, caught.value.commit_user, caught.value.identifier) == (2, "loader", 1)
    assert caught.value.files
    writer.abort()
    command = str(caught.value).split(": ")[-1]
    assert command.startswith("freshet repair lost-commit s3://")
    given = [f"--catalog-option={key}={text}" for key, text in versitygw.options.items()]
    program = [sys.executable, "-m", "freshet", *command.split()[1:], *given]
    for already in (False, True):
        done = subprocess.run([*program, "--json"], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        [repaired] = json.loads(done.stdout)["commits"]
        assert repaired["already_committed"] is already
        assert (repaired["user"], repaired["identifier"]) == ("loader", 1)
    everything = {1: "ours", 2: "ours", 3: "ours", 100: "theirs"}
    assert held(versitygw) == everything
    assert dict(theirs.read_rows()) == everything

    with pytest.raises(InvalidRequestError, match="is of another program"):
        opened(versitygw).writer("loader")
    put(opened(versitygw, **{"commit.adopt": "true"}), "loader", 4)
    put(opened(versitygw), "loader", 5)
    assert dict(theirs.read_rows()) == everything | {4: "ours", 5: "ours"}


def test_each_reads_and_continues_the_tables_of_the_other(versitygw: S3Place, jvm: PaimonCatalog) -> None:
    jvm.create_database("shop")
    theirs = jvm.create_table(
        "shop.orders", {"id": "BIGINT NOT NULL", "v": "STRING"}, primary_keys=["id"], options={"bucket": 1}
    )
    theirs.write([(1, "theirs"), (2, "theirs")])
    assert held(versitygw) == {1: "theirs", 2: "theirs"}
    with pytest.raises(InvalidRequestError, match="snapshot 1 is of another program"):
        put(opened(versitygw), "loader", 2)
    put(opened(versitygw, **{"commit.adopt": "true"}), "loader", 2, 3)
    both = {1: "theirs", 2: "ours", 3: "ours"}
    assert dict(theirs.read_rows()) == held(versitygw) == both
    put(opened(versitygw), "loader", 4)
    theirs.write([("-D", 1, "theirs"), (5, "theirs")], compact="full")
    both = {2: "ours", 3: "ours", 4: "ours", 5: "theirs"}
    assert dict(theirs.read_rows()) == held(versitygw) == both
    put(opened(versitygw, **{"commit.coordination": "single-writer"}), "loader", 6)
    assert dict(theirs.read_rows()) == held(versitygw) == both | {6: "ours"}
    assert not opened(versitygw).check(all_snapshots=True).damage
