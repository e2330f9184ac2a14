"""Names of files and folders, FORMAT.md §1."""

from __future__ import annotations

import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.paths import (
    SNAPSHOT_PREFIX,
    TablePaths,
    canonical_location,
    data_file_name,
    escape_path_name,
    file_format_of,
    numbered,
)

PATHS = TablePaths("/w/shop.db/orders")


def test_the_layout() -> None:
    assert PATHS.schema(0) == "/w/shop.db/orders/schema/schema-0"
    assert PATHS.snapshot(7) == "/w/shop.db/orders/snapshot/snapshot-7"
    assert PATHS.latest_hint == "/w/shop.db/orders/snapshot/LATEST"
    assert PATHS.earliest_hint == "/w/shop.db/orders/snapshot/EARLIEST"
    assert PATHS.changelog(7) == "/w/shop.db/orders/changelog/changelog-7"
    assert PATHS.manifest("manifest-u-0") == "/w/shop.db/orders/manifest/manifest-u-0"
    assert PATHS.index_file("index-u-0") == "/w/shop.db/orders/index/index-u-0"
    assert PATHS.statistics("stat-u-0") == "/w/shop.db/orders/statistics/stat-u-0"
    assert PATHS.tag("v 1") == "/w/shop.db/orders/tag/tag-v 1"
    assert PATHS.consumer("me") == "/w/shop.db/orders/consumer/consumer-me"
    assert PATHS.branch("b").snapshot(1) == "/w/shop.db/orders/branch/branch-b/snapshot/snapshot-1"


def test_data_files() -> None:
    assert PATHS.data_file("", 3, "f.parquet") == "/w/shop.db/orders/bucket-3/f.parquet"
    assert PATHS.data_file("a=1/b=x", 0, "f.parquet") == "/w/shop.db/orders/a=1/b=x/bucket-0/f.parquet"
    assert PATHS.bucket_folder("", -2) == "/w/shop.db/orders/bucket-postpone"
    below = TablePaths("/w/t", "data/files")
    assert below.bucket_folder("a=1", 0) == "/w/t/data/files/a=1/bucket-0"
    assert below.bucket_folder("", 0) == "/w/t/data/files/bucket-0"
    assert below.schema(0) == "/w/t/schema/schema-0"


def test_a_recorded_path_replaces_the_derived_one_also_for_side_cars() -> None:
    odd = "/e x?#/p=10%3A00/bucket-0/f.parquet"
    for written in (f"file:{odd}", f"file://{odd}", odd):
        assert PATHS.data_file("p=10%3A00", 0, "f.parquet", written) == odd, "nothing in it is encoded"
        assert PATHS.index_file("f.parquet", written) == odd
    with pytest.raises(InvalidRequestError, match="which is on elsewhere"):
        PATHS.index_file("i", "file://elsewhere/e/i")
    external = "file:/ext/p=1/bucket-0/f.parquet"
    assert PATHS.data_file("p=1", 0, "f.parquet", external) == "/ext/p=1/bucket-0/f.parquet"
    assert PATHS.extra_file("p=1", 0, "f.parquet.index", external) == "/ext/p=1/bucket-0/f.parquet.index"
    assert PATHS.extra_file("p=1", 0, "f.parquet.index") == "/w/shop.db/orders/p=1/bucket-0/f.parquet.index"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("/", "/"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b/", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file:///a%20b", "/a b"),
        ("/a/b:c=%3A", "/a/b:c=%3A"),
        ("relative/x:y", "relative/x:y"),
        ("S3://bucket/a/", "s3://bucket/a"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("abfss://c@account.dfs.core.windows.net/a/", "abfss://c@account.dfs.core.windows.net/a"),
        ("memory:/a%20b/", "memory:/a%20b"),
        ("memory:///a", "memory:/a"),
    ],
)
def test_one_text_for_one_place(given: str, path: str) -> None:
    assert canonical_location(given) == path


def test_files_of_another_host_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="only local paths.*which is on host"):
        canonical_location("file://host/a")


def test_files_in_another_store_than_their_table_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="s3://bucket/data-1.parquet is a file of /w/t that lies in another"):
        TablePaths("/w/t").data_file("", 0, "data-1.parquet", "s3://bucket/data-1.parquet")
    inside = TablePaths("s3://bucket/w/t").data_file("", 0, "data-1.parquet", "s3://bucket/data-1.parquet")
    assert inside == "s3://bucket/data-1.parquet"
    other = TablePaths("s3://bucket/w/t").data_file("", 0, "data-1.parquet", "s3a://other/data-1.parquet")
    assert other == "s3://other/data-1.parquet"


def test_every_character_that_is_escaped() -> None:
    escaped = {chr(code) for code in range(256) if escape_path_name(chr(code)) != chr(code)}
    assert escaped == set(map(chr, range(32))) | {"\x7f"} | set("\"#%'*/:=?\\{}[]^")
    assert escape_path_name("a/b=c:d\x7f") == "a%2Fb%3Dc%3Ad%7F"
    assert escape_path_name("é日本 x.. ~!@$&()+,;<>`|") == "é日本 x.. ~!@$&()+,;<>`|"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("snapshot-5", 5),
        ("snapshot-0", 0),
        ("snapshot-0012", None),
        ("snapshot-99999999999999999999", None),
        ("snapshot-5.tmp", None),
        ("snapshot-", None),
        ("snapshot--5", None),
        ("snapshot-٣", None),
        ("LATEST", None),
        (".snapshot-5.abc.tmp", None),
    ],
)
def test_numbers_of_file_names(name: str, number: int | None) -> None:
    assert numbered(name, SNAPSHOT_PREFIX) == number


def test_names_of_new_data_files() -> None:
    assert data_file_name("data-", "u", 0, "parquet") == "data-u-0.parquet"
    assert data_file_name("part_", "u", 12, "parquet", "zstd") == "part_u-12.zst.parquet"
    assert data_file_name("data-", "u", 0, "parquet", "gzip") == "data-u-0.gz.parquet"
    assert data_file_name("data-", "u", 0, "parquet", "SNAPPY") == "data-u-0.snappy.parquet"
    assert data_file_name("data-", "u", 0, "parquet", "none") == "data-u-0.parquet"


@pytest.mark.parametrize(
    ("name", "file_format"),
    [
        ("data-u-0.parquet", "parquet"),
        ("data-u-0.PARQUET", "parquet"),
        ("data-u-0.zst.parquet", "parquet"),
        ("x.parquet.zst", "parquet"),
        ("x.json.gz", "json"),
        ("data-u-0.orc", "orc"),
        ("a.b.avro", "avro"),
    ],
)
def test_the_extension_is_the_format(name: str, file_format: str) -> None:
    assert file_format_of(name) == file_format


@pytest.mark.parametrize("name", ["data-u-0", "zst"])
def test_a_name_without_extension_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a legal data file name"):
        file_format_of(name)
