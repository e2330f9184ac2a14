"""What readers ask a store for, counted: opening, planning, one key, many small files, a poll without news."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.filters.filter_text import parse_filter
from freshet.storage.io.file_cache import CacheKind, CacheSettings
from freshet.storage.io.object_file_io import ObjectFileIO
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.model.split import Split
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.pruning import ScanFilter
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


@pytest.mark.slow
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


def indexed_table(log: RequestLog, files: int, *, keyed: bool = True) -> Table:
    """Keys and values (v = k) of all files overlap, and an index beside each knows which it has. `n` is the number of
    the file, `p` of it in tens."""
    table = Catalog(WAREHOUSE, env=StoreEnv(log)).create_table(
        "d.t",
        schema={"p": "INT", "k": "BIGINT", "v": "BIGINT", "n": "INT"},
        primary_keys=["p", "k"] if keyed else [],
        partition_keys=["p"],
        options={
            "file-index.bloom-filter.columns": "k,v",
            "file-index.bloom-filter.k.items": "10",
            "file-index.bloom-filter.v.items": "10",
            "file-index.bloom-filter.k.fpp": "0.0001",
            "file-index.bloom-filter.v.fpp": "0.0001",
            "file-index.in-manifest-threshold": "0 b",
            "manifest.merge-min-count": "1000",
            **({"bucket": "1", "write-only": "true", "num-sorted-run.stop-trigger": "1000"} if keyed else {}),
        },
    )
    with table.writer("x") as writer:
        for number in range(files):
            keys = [key * files + number for key in range(5)]
            writer.write([{"p": number // 10, "k": key, "v": key, "n": number} for key in keys])
            writer.commit()
    return table


def index_requests(requests: list[Request]) -> list[str]:
    found = [each.path for each in requests if each.path.endswith(".index")]
    assert len(found) == len(set(found)), "one is read twice"
    return found


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append"])
def test_index_files_are_requested_at_once(log: RequestLog, keyed: bool) -> None:
    """Of 40 files with an index beside each; also where a filter has parts of a key and of a value."""
    indexed_table(log, 40, keyed=keyed)
    in_a_bucket = 10 if keyed else 1  # files that share keys are all read for the value of one
    for text, most in (("k = 83", 1), ("k = 83 AND v = 83", 1), ("k > 50 AND v = 83", in_a_bucket), ("v = 84", 10)):
        plan = warm_plan(opened(log, "d.t"), text)
        with log.together(30) as requests:
            splits = plan()
        assert 0 < sum(len(split.files) for split in splits) <= most + 1, text
        assert 30 < len(index_requests(requests)) <= 40
        assert log.most_in_flight >= 30, "each of them waited for the one before"


def warm_plan(table: Table, text: str) -> Callable[[], list[Split]]:
    """Plans with metadata that is in memory already."""
    table.scan().plan()
    scan_filter = ScanFilter.bind(table.store.schema, parse_filter(text))
    return partial(plan_scan, table.store, table.store.snapshots.latest(), scan_filter)


def test_index_files_are_requested_at_once_by_lookups(log: RequestLog) -> None:
    indexed_table(log, 40)
    table = opened(log, "d.t")
    table.scan().plan()
    keys, latest = pa.table({"p": pa.array([0], pa.int32()), "k": [83]}), table.store.snapshots.latest()
    with log.together(8) as requests:
        (found,) = find_stored_rows(table.store, latest, keys).rows.to_pylist()
    assert found == {"p": 0, "k": 83, "v": 83, "n": 3}
    assert len(index_requests(requests)) == 10, "those of its partition"
    assert log.most_in_flight >= 8, "each of them waited for the one before"
    assert 1 <= len([each for each in requests if each.path.endswith(".parquet")]) <= 2


def test_no_index_is_read_of_a_file_that_other_evidence_leaves_out(log: RequestLog) -> None:
    """Statistics of keys and values, and partitions."""
    indexed_table(log, 40, keyed=False)
    for text, count in (
        ("n = 7", 1),
        ("n = 7 AND k = 47", 1),
        ("k > 1000", 0),
        ("k > 50 AND v = 1000", 0),
        ("p = 2", 0),
        ("p = 2 AND k = 65", 10),
        ("p > 7", 0),
        ("n = 1 OR n = 38", 2),
    ):
        scan = opened(log, "d.t").scan(filter=text)
        with log.noted() as requests:
            scan.plan()
        assert len(index_requests(requests)) == count, text
    with log.noted() as requests:
        opened(log, "d.t").scan().plan()
        opened(log, "d.t").with_options({"file-index.read.enabled": "false"}).scan(filter="k = 83").plan()
    assert not index_requests(requests)


@pytest.mark.few(1)
@pytest.mark.parametrize("threshold", ["0 b", "1 mb"], ids=["beside", "in the manifest"])
def test_one_key_of_two_hundred_files_that_overlap(log: RequestLog, threshold: str) -> None:
    """A bloom filter of one in a thousand false answers: at most three data files are opened for a key."""
    table = Catalog(WAREHOUSE, env=StoreEnv(log)).create_table(
        "d.t",
        schema={"k": "BIGINT", "n": "INT"},
        primary_keys=["k"],
        options={
            "bucket": "1",
            "write-only": "true",
            "num-sorted-run.stop-trigger": "1000",
            "manifest.merge-min-count": "1000",
            "file-index.bloom-filter.columns": "k",
            "file-index.bloom-filter.k.items": "20",
            "file-index.bloom-filter.k.fpp": "0.001",
            "file-index.in-manifest-threshold": threshold,
        },
    )
    with table.writer("x") as writer:
        for number in range(200):
            writer.write([{"k": key * 200 + number, "n": number} for key in range(20)])
            writer.commit()
    for key, by_lookup in product((7 * 200, 11 * 200 + 77, 12 * 200 + 199), (False, True)):
        table = opened(log, "d.t")
        with log.noted() as requests:
            found = (
                table.lookup(pa.table({"k": [key]})).rows if by_lookup else table.scan(filter=f"k = {key}").to_arrow()
            )
        assert found.to_pylist() == [{"k": key, "n": key % 200}]
        assert 1 <= len({each.path for each in requests if each.path.endswith(".parquet")}) <= 3
        assert 180 < len(index_requests(requests)) <= 200 if threshold == "0 b" else not index_requests(requests)


def test_an_index_that_is_kept_locally_is_not_requested(log: RequestLog, tmp_path: Path) -> None:
    """`file-index` in `local-cache.whitelist`."""
    indexed_table(log, 20)
    kept = CacheSettings(str(tmp_path), kinds=frozenset({CacheKind.META, CacheKind.FILE_INDEX}))
    for cache, first, second in ((CacheSettings(str(tmp_path)), 20, 20), (kept, 20, 0)):
        for count in (first, second):
            with log.noted() as requests:
                opened(log, "d.t", cache).scan(filter="k = 43").plan()
            assert len(index_requests(requests)) == count


def _batches(found: pa.Table | object) -> list[pa.RecordBatch]:
    return found.to_batches() if isinstance(found, pa.Table) else list(found)  # type: ignore[call-overload]
