"""Tables of which Apache Paimon keeps Iceberg metadata: we write them, say once that it lags, and leave it alone."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from freshet import Catalog, InvalidRequestError, SetOption, Table, UnsupportedFeatureError
from freshet.storage.commit.iceberg_lag import STORAGE


def made(folder: Path) -> Table:
    """As Paimon leaves it: the option in the schema, and files of its own in `metadata`."""
    table = Catalog(folder).create_table(
        "shop.orders",
        schema={"dt": "STRING NOT NULL", "id": "BIGINT"},
        primary_keys=["dt", "id"],
        partition_keys=["dt"],
        options={"bucket": 1},
    )
    file = Path(table.location, "schema", "schema-0")
    document = json.loads(file.read_text())
    document["options"][STORAGE] = "table-location"
    file.write_text(json.dumps(document))
    metadata = Path(table.location, "metadata")
    metadata.mkdir()
    for name in ("v1.metadata.json", "version-hint.text", "snap-1-x.avro", ".v2.tmp", "x-m0.avro"):
        (metadata / name).write_bytes(b"theirs")
    return Catalog(folder).table("shop.orders")


def test_it_is_written_with_one_warning_and_its_metadata_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path / "w")
    with caplog.at_level(logging.WARNING):
        for day in ("a", "b"):
            for number in range(3):
                table.append([{"dt": day, "id": number}])
        table.compact()
        table.delete("id = 1")
        table.overwrite([{"dt": "a", "id": 9}])
        table.rollback(2)
        table.drop_partition({"dt": "b"})
        table.truncate()
    said = [record.getMessage() for record in caplog.records if STORAGE in record.getMessage()]
    assert len(said) == 1 and "shop.orders" in said[0] and "until Paimon commits again" in said[0]
    table.append([{"dt": "c", "id": 1}])
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    table.with_options({"partition.expiration-strategy": "update-time"}).expire_partitions(older_than=timedelta(0))
    table.remove_orphan_files(older_than_ms=0)
    assert table.check().damage == []
    assert sorted(file.name for file in Path(table.location, "metadata").iterdir()) == sorted(
        ("v1.metadata.json", "version-hint.text", "snap-1-x.avro", ".v2.tmp", "x-m0.avro")
    )


def test_ids_are_not_used_again(tmp_path: Path) -> None:
    table = made(tmp_path / "w")
    table.append([{"dt": "a", "id": 1}])
    table.append([{"dt": "a", "id": 2}])
    with pytest.raises(UnsupportedFeatureError, match="without delete_newer"):
        table.rollback(1, delete_newer=True, force=True)
    assert [each.id for each in table.snapshots()] == [1, 2]


def test_no_table_of_ours_asks_for_it(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "w")
    with pytest.raises(UnsupportedFeatureError, match="writes no Iceberg metadata"):
        catalog.create_table("shop.t", schema={"id": "BIGINT"}, options={STORAGE: "table-location"})
    table = catalog.create_table("shop.t", schema={"id": "BIGINT"}, options={STORAGE: "disabled"})
    with pytest.raises((InvalidRequestError, UnsupportedFeatureError), match="Iceberg"):
        table.alter(SetOption(STORAGE, "hadoop-catalog"))
