"""Changes of type against the rows that a table holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog, ChangeType, InvalidRequestError, Table


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


def keyed(catalog: Catalog, **options: str) -> Table:
    return catalog.create_table(
        "db.t",
        schema={"id": "INT", "n": "INT", "big": "BIGINT", "text": "VARCHAR(5)"},
        primary_keys=["id"],
        options={"bucket": "2", **options},
    )


def load(table: Table, **columns: list[object]) -> None:
    with table.writer("u") as writer:
        writer.write(pa.table(columns))
        writer.commit()


@pytest.mark.parametrize(
    ("change", "loss"),
    [
        (ChangeType("big", "SMALLINT"), "wrap"),
        (ChangeType("text", "INT"), "reading fails for text that is not a valid INT"),
        (ChangeType("text", "VARCHAR(2)"), "longer than 2 characters is cut"),
    ],
)
def test_a_loss_must_be_allowed(catalog: Catalog, change: ChangeType, loss: str) -> None:
    table = keyed(catalog)
    assert str(table.alter(change).schema.by_name[change.name].type) == change.type  # no rows, no loss
    table = catalog.create_table(
        "db.u", schema={"id": "INT", "big": "BIGINT", "text": "VARCHAR(5)"}, primary_keys=["id"], options={"bucket": 1}
    )
    load(table, id=[1], big=[2**40], text=["12"])
    with pytest.raises(InvalidRequestError, match=loss) as raised:
        table.alter(AddColumn("fine", "INT"), change)
    assert raised.value.column == change.name
    assert "allow_lossy=True" in str(raised.value)
    assert catalog.table("db.u").schema.id == 0
    altered = table.alter(change, allow_lossy=True)
    assert altered.scan().to_arrow().num_rows == 1


def test_a_lossy_change_reads_as_the_format_casts(catalog: Catalog) -> None:
    table = keyed(catalog)
    load(table, id=[1], big=[2**40 + 7], text=["12"])
    altered = table.alter(ChangeType("big", "SMALLINT"), ChangeType("text", "INT"), allow_lossy=True)
    assert altered.scan(columns=["big", "text"]).to_arrow().to_pylist() == [{"big": 7, "text": 12}]


@pytest.mark.parametrize("allow_lossy", [False, True])
def test_the_type_of_a_bucket_key_column_stays(catalog: Catalog, allow_lossy: bool) -> None:
    """Rows of the old type were looked for in the buckets of the new one, and not found."""
    table = catalog.create_table(
        "db.log", schema={"k": "INT", "v": "VARCHAR(3)"}, options={"bucket": "4", "bucket-key": "k,v"}
    )
    assert table.alter(ChangeType("k", "BIGINT")).alter(ChangeType("k", "INT")).schema.id == 2  # no rows yet
    table = catalog.table("db.log")
    load(table, k=[*range(-50, 50)], v=["a"] * 100)
    for target in ("BIGINT", "STRING"):
        with pytest.raises(InvalidRequestError, match="other buckets") as raised:
            table.alter(ChangeType("k", target), allow_lossy=allow_lossy)
        assert (raised.value.column, raised.value.option) == ("k", "bucket-key")
    assert table.alter(ChangeType("v", "STRING")).schema.id == 3  # hashed as before


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"sequence.field": "n"}, "sequence.field"),
        ({"merge-engine": "partial-update", "fields.n.sequence-group": "big"}, "fields.n.sequence-group"),
    ],
)
def test_what_orders_changes_keeps_its_order(catalog: Catalog, options: dict[str, str], option: str) -> None:
    table = keyed(catalog, **options)
    load(table, id=[1], n=[9], big=[1], text=["old"])
    with pytest.raises(InvalidRequestError, match="older row could win") as raised:
        table.alter(ChangeType("n", "STRING"), allow_lossy=True)
    assert (raised.value.column, raised.value.option) == ("n", option)
    wider = table.alter(ChangeType("n", "BIGINT"))
    load(wider, id=[1], n=[10], big=[2], text=["new"])
    assert wider.scan(columns=["big"]).to_arrow().to_pylist() == [{"big": 2}]
