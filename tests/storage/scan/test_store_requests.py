"""What readers ask a store for, counted: opening, planning, one key, many small files, a poll without news."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.io.cache_settings import CacheKind, CacheSettings
from freshet.storage.io.object_file_io import ObjectFileIO
from freshet.storage.table import Table
from tests.kit.many_files import NAME, make_many_files, value_of
from tests.kit.request_log import Request, RequestLog, StoreEnv

WAREHOUSE = "memory:/w"
COMMITS = 5


@pytest.fixture
def log() -> RequestLog:
    """A store with the costs of S3."""
    return RequestLog(ObjectFileIO.read_costs)


def opened(log: RequestLog, name: str, cache: CacheSettings | None = None) -> Table:
    """As another process opens it."""
    return Catalog(WAREHOUSE, env=StoreEnv(log, cache)).table(name)


def small_table(log: RequestLog, commits: int = COMMITS, **options: str) -> Table:
    """Each commit is a file of one row."""
    table = Catalog(WAREHOUSE, env=StoreEnv(log)).create_table(
        "d.t",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true"} | options,
    )
    with table.writer("x") as writer:
        for number in range(commits):
            writer.write([{"id": number, "v": f"v{number}"}])
            writer.commit()
    return table


def names(requests: list[Request]) -> list[str]:
    """Sorted; numbers and ids of files as they are only where they are no uuids."""
    return sorted(f"{each.kind} {_short(each.path)}" for each in requests)


def _short(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    return name if len(name) < 20 else name.split("-")[0] + ("-list" if name.startswith("manifest-list") else "")


def test_a_table_is_opened_by_one_listing_and_one_file(log: RequestLog) -> None:
    small_table(log)
    catalog = Catalog(WAREHOUSE, env=StoreEnv(log))
    with log.noted() as requests:
        catalog.table("d.t")
    assert names(requests) == ["get schema-0", "list schema"]


def test_planning_lists_nothing(log: RequestLog) -> None:
    small_table(log)
    table = opened(log, "d.t")
    with log.noted() as requests:
        table.scan().plan()
    found = Counter(names(requests))
    assert found.pop("get manifest") == COMMITS
    assert found.pop("get manifest-list") == 2
    assert sorted(found.elements()) == ["get LATEST", "get schema-0", "get snapshot-5", "get snapshot-6"]
    with log.noted() as requests:
        table.scan().plan()
    assert names(requests) == ["get schema-0", "get snapshot-5", "get snapshot-6"]


def test_what_was_planned_is_read_by_a_request_for_each_small_file(log: RequestLog) -> None:
    small_table(log)
    scan = opened(log, "d.t").scan()
    scan.plan()
    with log.noted() as requests:
        assert scan.to_arrow().num_rows == COMMITS
    assert names(requests) == ["range data"] * COMMITS


def test_another_process_finds_metadata_in_the_local_cache(log: RequestLog, tmp_path: Path) -> None:
    small_table(log)
    everything = CacheSettings(str(tmp_path), kinds=frozenset({CacheKind.META, CacheKind.DATA}))
    for cache, first, second in ((CacheSettings(str(tmp_path)), 7, 0), (everything, 0, 0)):
        for metadata, data in ((first, COMMITS), (second, COMMITS if cache is not everything else 0)):
            with log.noted() as requests:
                assert opened(log, "d.t", cache).scan().to_arrow().num_rows == COMMITS
            found = Counter(each.split()[1].split("-")[0] for each in names(requests))
            assert (found["manifest"], found["data"]) == (metadata, data)


def test_a_manifest_that_is_damaged_in_the_cache_is_read_again(log: RequestLog, tmp_path: Path) -> None:
    table = small_table(log)
    cache = CacheSettings(str(tmp_path))
    rows = opened(log, "d.t", cache).scan().to_arrow()
    for file in tmp_path.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-1])
    assert opened(log, "d.t", cache).scan().to_arrow().equals(rows)
    # damage in the store itself is found, though the cache has the file as it was
    (manifest, *_) = [entry.path for entry in log.entries(f"{table.location}/manifest") if "list" not in entry.name]
    good = log.read_bytes(manifest)
    log.overwrite(manifest, good[:-40] + bytes(40))
    assert opened(log, "d.t", cache).check().damage
    assert opened(log, "d.t", cache).scan().to_arrow().equals(rows)
    log.overwrite(manifest, good)
    assert not opened(log, "d.t", cache).check().damage


@pytest.mark.parametrize("commits", [0, 3])
def test_a_poll_without_news_is_two_requests(log: RequestLog, commits: int) -> None:
    table = small_table(log, commits, **{"changelog-producer": "input"})
    found: list[list[Request]] = []
    env = table.store.env

    def sleep(seconds: float) -> None:
        found.append(list(log.requests))
        log.requests.clear()

    env.sleep_s = sleep  # type: ignore[method-assign]
    list(table.stream(scan_mode="latest", max_wait_s=60))
    polls = [names(each) for each in found]
    expected = ["get snapshot-3", "get snapshot-4"] if commits else ["get schema-0", "list snapshot"]
    assert len(polls) > 3
    assert all(each == expected for each in polls[2:])


def test_one_key_of_ten_thousand_files(log: RequestLog, tmp_path: Path) -> None:
    asked = [77_701, 12_350]
    make_many_files(Catalog(WAREHOUSE, env=StoreEnv(log)), asked)
    cache = CacheSettings(str(tmp_path))
    table = opened(log, NAME, cache)
    assert len(table.files()) > 9_900
    for key, most in zip(asked, (40, 12), strict=True):
        if key == asked[0]:
            table = opened(log, NAME, cache)  # cold: neither memory nor the disk has anything
            for file in tmp_path.rglob("*"):
                if file.is_file():
                    file.unlink()
        with log.noted() as requests:
            found = table.lookup(pa.table({"id": [key]}))
        assert found.by_key().column("v").to_pylist() == [value_of(key)]
        assert 0 < len(requests) <= most, names(requests)
    with log.noted() as requests:  # another process, with the disk of the first one
        opened(log, NAME, cache).lookup(pa.table({"id": [asked[0]]}))
    assert len(requests) <= 12, names(requests)


def test_many_small_files_are_requested_at_once(log: RequestLog) -> None:
    small_table(log, 60, **{"manifest.merge-min-count": "1000", "num-sorted-run.stop-trigger": "1000"})
    for name in ("to_arrow", "to_batches", "count"):
        scan = opened(log, "d.t").scan()
        scan.plan()
        with log.together(32) as requests:
            found = getattr(scan, name)()
            count = found if isinstance(found, int) else sum(batch.num_rows for batch in _batches(found))
        assert count == 60
        assert len(requests) == 60
        assert log.most_in_flight >= 32


def _batches(found: pa.Table | object) -> list[pa.RecordBatch]:
    return found.to_batches() if isinstance(found, pa.Table) else list(found)  # type: ignore[call-overload]
