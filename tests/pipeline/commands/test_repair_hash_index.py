"""freshet repair hash-index: where the keys of dynamic buckets are, built again from the rows."""

from __future__ import annotations

from pathlib import Path

from freshet import Catalog
from tests.pipeline.commands.kit import Freshet


def test_a_lost_index_is_built_again(freshet: Freshet, tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": -1}
    )
    with table.writer("loader") as writer:
        writer.write([{"id": number} for number in range(3)])
        writer.commit()
    place = (tmp_path, "shop.orders")
    assert freshet.good("repair", "hash-index", *place).out == "shop.orders: the hash indexes of 1 bucket are whole\n"
    [index] = Path(table.store.paths.index_file("")).glob("index-*")
    index.unlink()
    checked = freshet("check-table", *place)
    assert checked.code == 65
    assert f"{index}: snapshot 1 names the file, and it is not there" in checked.out
    assert f"freshet repair hash-index {tmp_path} shop.orders" in checked.out
    assert freshet.good("repair", "hash-index", *place).out == (
        f"bucket 0: {index.name} is missing or damaged; built again with 3 keys as snapshot 2\n"
    )
    assert freshet.good("repair", "hash-index", *place, "--json").facts == {
        "repaired": [],
        "bucket_count": 1,
        "keys_in_two_buckets": [],
    }
    refused = freshet("repair", "hash-index", *place, "--all")
    assert refused.code == 2
    assert "--all are of lost-commit" in refused.err
