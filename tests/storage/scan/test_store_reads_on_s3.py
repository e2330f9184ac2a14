"""Tables in S3 read as those on a disk are, at the cost that was promised: counted by a proxy before the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.storage.io.object_file_io import ObjectFileIO
from freshet.storage.io.ranges import ReadCosts
from freshet.storage.table import Table
from tests.kit.many_files import NAME, make_many_files, value_of
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import Request, StoreProxy, through

SMALL_FILES = 1000
SCHEMA = {
    "id": "BIGINT",
    "day": "DATE",
    "text": "STRING",
    "amount": "DECIMAL(12, 2)",
    "at": "TIMESTAMP(9)",
    "list": "ARRAY<INT>",
    "row": "ROW<x INT, y STRING>",
}


def catalog_of(place: S3Place, folder: Path, **options: str) -> Catalog:
    return Catalog(place.root, options={**place.options, "local-cache.dir": str(folder), **options})


def rows(seed: int, count: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    ids = chance.permutation(4 * count)[:count]
    return pa.table(
        {
            "id": pa.array(ids),
            "day": pa.array(ids % 20_000, pa.int32()).cast(pa.date32()),
            "text": [f"text {each * 7919}" for each in ids.tolist()],
            "amount": pa.array((ids % 1000).astype(np.int32)).cast(pa.decimal128(12, 2)),
            "at": pa.array(ids * 1_000_003, pa.timestamp("ns")),
            "list": pa.array([[each, None] for each in ids.tolist()], pa.list_(pa.int32())),
            "row": pa.array(
                [{"x": each, "y": None} for each in ids.tolist()], pa.struct({"x": "int32", "y": "string"})
            ),
        }
    )


def written(catalog: Catalog, **options: str) -> Table:
    table = catalog.create_table(
        "d.t", schema=SCHEMA, primary_keys=["id"], options={"bucket": "2", "manifest.format": "avro"} | options
    )
    with table.writer("x") as writer:
        for number in range(3):
            changes = rows(number, 3000)
            if number == 2:
                kinds = pa.array(["-D" if at % 5 == 0 else "+I" for at in range(changes.num_rows)])
                changes = changes.append_column("_ROW_KIND", kinds)
            writer.write(changes)
            writer.commit()
    return table


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options",
    [
        {"write-only": "true"},
        {"deletion-vectors.enabled": "true"},
        {"changelog-producer": "lookup", "file.compression": "none"},
    ],
    ids=["runs", "deletion vectors", "changelog"],
)
@pytest.mark.parametrize("kept", ["meta", "meta,bucket-index,data"])
def test_rows_and_changes_are_those_of_a_table_on_a_disk(
    s3: S3Place, tmp_path: Path, options: dict[str, str], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = ReadCosts(whole_bytes=20_000, gap_bytes=2_000, request_bytes=16_000, in_flight=16)
    monkeypatch.setattr(ObjectFileIO, "read_costs", costs)
    local = written(Catalog(str(tmp_path / "w")), **options)
    written(catalog_of(s3, tmp_path / "writer"), **options)
    for _ in range(2):  # the second finds what the first has kept
        catalog = catalog_of(s3, tmp_path, **{"local-cache.whitelist": kept, "local-cache.block-size": "5 kb"})
        table = catalog.table("d.t")
        for request in ({}, {"columns": ["row", "id"]}, {"filter": "id between 100 and 900 and text like 'text%'"}):
            expected, found = local.scan(**request), table.scan(**request)
            assert found.to_arrow().sort_by("id").equals(expected.to_arrow().sort_by("id"))
            assert found.count() == expected.count() > 0
        keys = pa.table({"id": range(50)})
        assert table.lookup(keys).by_key().equals(local.lookup(keys).by_key())
        if "changelog-producer" in options:
            changes = [
                each.changelog().to_arrow().sort_by([("_SNAPSHOT_ID", "ascending"), ("id", "ascending")])
                for each in (local, table)
            ]
            assert changes[0].num_rows > 0
            assert changes[0].select(["id", "text"]).equals(changes[1].select(["id", "text"]))


@pytest.fixture
def proxy(versitygw: S3Place) -> Iterator[StoreProxy]:
    with StoreProxy(versitygw.endpoint) as proxy:
        yield proxy


@pytest.mark.slow
def test_a_thousand_small_files_keep_32_requests_in_flight(
    versitygw: S3Place, proxy: StoreProxy, tmp_path: Path
) -> None:
    table = catalog_of(versitygw, tmp_path).create_table(
        "d.small", schema={"k": "INT", "v": "STRING"}, partition_keys=["k"], options={"bucket": "-1"}
    )
    with table.writer("x") as writer:
        writer.write(pa.table({"k": pa.array(range(SMALL_FILES), pa.int32()), "v": ["text"] * SMALL_FILES}))
        writer.commit()
    proxy.delay_s = 0.1
    for name in ("to_arrow", "to_batches", "count"):
        scan = catalog_of(through(versitygw, proxy), tmp_path).table("d.small").scan(filter="v = 'text'")
        assert sum(len(split.files) for split in scan.plan()) == SMALL_FILES
        with proxy.counted() as requests:
            found = getattr(scan, name)()
            count = found if isinstance(found, int) else sum(part.num_rows for part in _parts(found))
        assert count == SMALL_FILES
        assert len(requests) == SMALL_FILES
        assert proxy.most_in_flight(requests) >= 32
        assert proxy.longest_chain(requests) <= SMALL_FILES // 16


@pytest.mark.slow
def test_one_key_of_ten_thousand_files(versitygw: S3Place, proxy: StoreProxy, tmp_path: Path) -> None:
    asked = [77_701, 12_350, 50]
    make_many_files(catalog_of(versitygw, tmp_path / "writer"), asked)
    catalog = catalog_of(through(versitygw, proxy), tmp_path / "reader")
    with proxy.counted() as cold:
        table = catalog.table(NAME)
        assert _value(table, asked[0]) == value_of(asked[0])
    assert len(cold) <= 40, _texts(cold)
    for key in asked[1:]:
        with proxy.counted() as warm:
            assert _value(table, key) == value_of(key)
        assert len(warm) <= 12, _texts(warm)


def _value(table: Table, key: int) -> str:
    (value,) = table.lookup(pa.table({"id": [key]})).by_key().column("v").to_pylist()
    return str(value)


def _texts(requests: Sequence[Request]) -> list[str]:
    return [str(each) for each in requests]


def _parts(found: pa.Table | Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return found.to_batches() if isinstance(found, pa.Table) else list(found)
