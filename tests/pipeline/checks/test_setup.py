"""Before a run starts: tables that must be the same, checkpoints that must be one's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from freshet.pipeline.config.model import PipelineConfig, TableConfig
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_owner import checkpoint_problem, claim_checkpoint
from freshet.pipeline.query.driver.table_setup import check_table, open_or_create, unused_options, with_table
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.schema.change import AddColumn


def _table(folder: Path, **changes: object) -> TableConfig:
    given = {
        "warehouse": str(folder),
        "name": "shop.orders",
        "columns": {"id": "BIGINT", "total": "DECIMAL(10,2)", "day": "DATE"},
        "primary_key": ["id", "day"],
        "partition_by": ["day"],
        "options": {"bucket": 2, "file.compression": "zstd"},
    }
    return TableConfig.model_validate({**given, **changes})


def _config(folder: Path, **changes: object) -> PipelineConfig:
    return _pipeline(folder, table=_table(folder, **changes))


def test_a_table_is_created_once_and_then_the_same(tmp_path: Path) -> None:
    first = open_or_create(_config(tmp_path))
    assert first.schema.primary_keys == ("id", "day")
    assert open_or_create(_config(tmp_path)).schema == first.schema
    # Options that do not decide what files mean belong to the table, not to the file.
    assert open_or_create(_config(tmp_path, options={"bucket": 2, "file.compression": "lz4"})).schema == first.schema


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {"id": "BIGINT", "total": "INT", "day": "DATE"}}, "column total is DECIMAL"),
        (
            {"columns": {"id": "BIGINT", "total": "DECIMAL(10,2)", "day": "DATE", "more": "INT"}},
            'freshet sql {folder} "ALTER TABLE shop.orders ADD COLUMN more INT"',
        ),
        ({"primary_key": ["day", "id"]}, "its primary key is"),
        ({"partition_by": [], "primary_key": ["id", "day"]}, "it is partitioned by"),
        ({"options": {"bucket": -1}}, "option bucket is 2 there and -1 in the file"),
    ],
)
def test_another_table_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    open_or_create(_config(tmp_path))
    assert any(message.format(folder=tmp_path) in text for text in check_table(_config(tmp_path, **changes)))
    with pytest.raises(ConfigurationError, match="differs from the pipeline file"):
        open_or_create(_config(tmp_path, **changes))


def test_a_table_that_was_rescaled_keeps_its_buckets(tmp_path: Path) -> None:
    open_or_create(_config(tmp_path)).rescale(8)
    assert open_or_create(_config(tmp_path)).options.bucket == 8
    [text] = unused_options(_config(tmp_path))
    command = f"freshet rescale {tmp_path} shop.orders --bucket 2"
    assert text.endswith(f"bucket is 8 there, so bucket=2 of the file does nothing. It is changed with: {command}")


def test_the_command_that_mends_it_can_be_pasted(tmp_path: Path) -> None:
    given = {"warehouse": f"{tmp_path}/my w", "name": "shop.new orders"}
    open_or_create(_config(tmp_path, **given))
    more = {"id": "BIGINT", "total": "DECIMAL(10,2)", "day": "DATE", "more": "INT"}
    differences = check_table(_config(tmp_path, **given, columns=more))
    command = f"freshet sql '{tmp_path}/my w' 'ALTER TABLE shop.`new orders` ADD COLUMN more INT'"
    assert any(command in text for text in differences)


def test_a_table_that_cannot_be_created_is_reported_by_the_check(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="bucket"):
        check_table(_config(tmp_path, options={"bucket": -3}))
    assert list(tmp_path.iterdir()) == []


def test_checking_creates_nothing(tmp_path: Path) -> None:
    assert check_table(_config(tmp_path / "warehouse")) == []
    assert not (tmp_path / "warehouse").exists()


def test_a_checkpoint_has_one_owner(tmp_path: Path) -> None:
    table = open_or_create(_config(tmp_path))
    for _ in range(2):
        claim_checkpoint(f"{tmp_path}/checkpoint", pipeline="a", table=table)
    claim_checkpoint((tmp_path / "checkpoint").as_uri(), pipeline="a", table=table)
    with pytest.raises(ConfigurationError, match="belongs to pipeline 'a', not 'b'"):
        claim_checkpoint(f"{tmp_path}/checkpoint", pipeline="b", table=table)
    other = open_or_create(_config(tmp_path, name="shop.others"))
    with pytest.raises(ConfigurationError, match="belongs to the table at"):
        claim_checkpoint(f"{tmp_path}/checkpoint", pipeline="a", table=other)
    Catalog(str(tmp_path)).drop_table("shop.orders")
    again = open_or_create(_config(tmp_path))
    with pytest.raises(ConfigurationError, match="dropped and created again"):
        claim_checkpoint(f"{tmp_path}/checkpoint", pipeline="a", table=again)


def test_a_checkpoint_follows_a_renamed_table_as_its_message_says(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    claim_checkpoint(str(checkpoint), pipeline="a", table=open_or_create(_config(tmp_path)))
    catalog = Catalog(str(tmp_path))
    catalog.rename_table("shop.orders", "shop.sold")
    problem = checkpoint_problem(str(checkpoint), pipeline="a", table=None)
    assert problem is not None
    assert "dropped or renamed" in problem
    renamed = catalog.table("shop.sold")
    with pytest.raises(ConfigurationError, match="if the table was renamed, write into") as refused:
        claim_checkpoint(str(checkpoint), pipeline="a", table=renamed)
    file, owner = re.findall(r"write into (.*?): (\{.*\})", str(refused.value))[0]
    Path(file).write_text(owner)
    claim_checkpoint(str(checkpoint), pipeline="a", table=renamed)
    other = open_or_create(_config(tmp_path, name="shop.others"))
    with pytest.raises(ConfigurationError, match="belongs to the table at") as refused:
        claim_checkpoint(str(checkpoint), pipeline="a", table=other)
    assert "renamed" not in str(refused.value)


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        ({}, {"fields.total.sequence-group": "note"}, "is not set there and note in the file"),
        ({"fields.total.sequence-group": "note"}, {}, "is note there and not set in the file"),
        ({"sequence.field": "total"}, {"sequence.field": "day"}, "option sequence.field is total there and day"),
        ({}, {"fields.note.stats-mode": "none"}, ""),
    ],
)
def test_all_who_write_a_table_agree_on_what_its_rows_mean(
    tmp_path: Path, there: dict[str, str], here: dict[str, str], message: str
) -> None:
    columns = {"id": "BIGINT", "total": "BIGINT", "day": "DATE", "note": "STRING"}
    common = {"bucket": 1} if "sequence.field" in there else {"bucket": 1, "merge-engine": "partial-update"}
    arguments: dict[str, object] = {"columns": columns, "primary_key": ["id"], "partition_by": []}
    open_or_create(_config(tmp_path, **arguments, options={**common, **there}))
    found = check_table(_config(tmp_path, **arguments, options={**common, **here}))
    assert [message in text for text in found] == ([True] if message else [])


def test_a_nullable_column_that_the_file_does_not_name_is_no_difference(tmp_path: Path) -> None:
    open_or_create(_config(tmp_path)).alter(AddColumn("note", "STRING"))
    assert check_table(_config(tmp_path)) == []


def test_records_are_decoded_for_the_options_that_the_table_has(tmp_path: Path) -> None:
    open_or_create(_config(tmp_path))
    config = _pipeline(tmp_path, table=_table(tmp_path, options={}))
    assert config.table.table_schema.options == {}
    assert with_table(config).table.table_schema.options["bucket"] == "2"
    assert with_table(_pipeline(tmp_path / "new", table=_table(tmp_path / "new"))).table.options["bucket"] == "2"


def test_a_folder_of_this_machine_is_the_one_of_the_file_and_not_of_the_table(tmp_path: Path) -> None:
    """With nothing said here, what another has given the table is no option of this pipeline."""
    folders = {"lookup.cache-dir": "/ours", "cross-partition-upsert.index-dir": "/ours too"}
    theirs = {"lookup.cache-dir": "/theirs", "cross-partition-upsert.index-dir": "/theirs"}
    open_or_create(_config(tmp_path, options={"bucket": "2", **theirs}))
    config = with_table(_pipeline(tmp_path, table=_table(tmp_path, options={})))
    assert config.table.own_options == {}
    given = {"options": {"bucket": "2", **folders}, "write_options": {"lookup.cache-dir": "/this writer's"}}
    config = with_table(_pipeline(tmp_path, table=_table(tmp_path, **given)))
    assert config.table.own_options == {**folders, **given["write_options"]}
    assert open_or_create(config).engine.dynamic_options == folders
    assert not [text for text in unused_options(config) if "dir" in text]


def _pipeline(folder: Path, **changes: object) -> PipelineConfig:
    source = {"files": {"path": str(folder / "in")}, "format": "json"}
    given = {"name": "orders", "sources": [source], "checkpoint": str(folder / "checkpoint"), "table": _table(folder)}
    return PipelineConfig.model_validate({**given, **changes})
