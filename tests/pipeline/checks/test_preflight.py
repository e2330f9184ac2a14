"""What is found before a pipeline starts, with the line of the file, and that looking writes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import RenameColumn
from freshet.pipeline.checks.preflight import problems_before_start, warnings_before_start
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_owner import claim_checkpoint
from freshet.pipeline.query.driver.dead_letters import DEAD_LETTER_COLUMNS
from freshet.pipeline.query.driver.table_setup import open_or_create, with_table
from freshet.storage.catalog import Catalog
from freshet.storage.commit.committer import Committer
from freshet.storage.schema.change import SetOption
from tests.kit.components import missing
from tests.kit.folders import unchanged
from tests.logstore.logged_tables import fake_kafka, make_logged, rows

TEXT = """\
name: orders
sources:
  - files: {path: "FOLDER/in"}
    format: json
table:
  warehouse: "FOLDER/w"
  name: shop.orders
  columns: {id: BIGINT, total: INT}
  primary_key: [id]
  options: {bucket: 1}
checkpoint: "FOLDER/c"
"""


def configured(folder: Path, *changes: tuple[str, str]) -> PipelineConfig:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "p.yaml"
    path.write_text(text.replace("FOLDER", str(folder)))
    return load_pipeline(path, {})


def found(folder: Path, *changes: tuple[str, str]) -> list[str]:
    config = configured(folder, *changes)
    with unchanged(folder):
        problems = problems_before_start(config)
    return [str(problem).replace(f"{folder}/", "") for problem in problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


def test_nothing_is_wrong_with_a_new_pipeline(folder: Path) -> None:
    assert found(folder) == []


def test_what_holds_for_several_sources_is_said_once(folder: Path) -> None:
    source = '  - files: {path: "FOLDER/in"}\n    format: json\n    select: {id: "x + 1", total: total}\n'
    config = configured(folder, ('  - files: {path: "FOLDER/in"}\n    format: json\n', 3 * source))
    found = [text for text in warnings_before_start(config) if "the key column id is computed" in text]
    assert len(found) == 1


def test_a_folder_of_files_must_be_there(folder: Path) -> None:
    assert found(folder, ("/in", "/missing")) == [
        "p.yaml:3: sources.0.files.path: missing is not there; make the folder, it may be empty"
    ]
    assert found(folder, ("/in", "/in/*.json")) == []
    assert len(found(folder, ("/in", "/missing/*.json"))) == 1
    assert found(folder, ("FOLDER/in", "file:FOLDER/in")) == []


def test_the_table_must_be_the_same(folder: Path) -> None:
    open_or_create(configured(folder))
    (problem,) = found(folder, ("total: INT", "total: BIGINT"))
    assert problem.startswith("p.yaml:5: table: shop.orders exists and differs: column total is INT there")


def test_a_column_that_was_renamed(folder: Path) -> None:
    table = open_or_create(configured(folder))
    assert found(folder, ("total: INT", "total: INT, more: INT"))[0].endswith(
        'freshet sql w "ALTER TABLE shop.orders ADD COLUMN more INT". Change the file, or alter the table'
    )
    table.alter(RenameColumn("total", "amount"))
    (problem,) = found(folder)
    assert (
        'ADD COLUMN total INT". If it was renamed, give it the new name in the file, which does not name amount'
        in problem
    )


def test_a_table_that_cannot_be_created(folder: Path) -> None:
    (problem,) = found(folder, ("total: INT", "total: FLOAT"), ("bucket: 1", "bucket-key: id"))
    assert "p.yaml:" in problem
    assert "bucket" in problem


def test_a_foreign_checkpoint(folder: Path) -> None:
    table = open_or_create(configured(folder))
    claim_checkpoint(str(folder / "c"), pipeline="other", table=table)
    (problem,) = found(folder)
    assert problem.startswith("p.yaml:11: checkpoint: checkpoint c belongs to pipeline 'other', not 'orders'")


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_an_owner_file_without_an_owner(folder: Path, content: str) -> None:
    table = open_or_create(configured(folder))
    (folder / "c").mkdir()
    (folder / "c" / "freshet.json").write_text(content)
    (problem,) = found(folder)
    assert "p.yaml:11: checkpoint: " in problem
    assert "does not say which pipeline it belongs to" in problem
    with pytest.raises(ConfigurationError, match="remove that file"):
        claim_checkpoint(str(folder / "c"), pipeline="orders", table=table)


def test_the_remedy_for_a_damaged_owner_file_lets_the_run_go_on(folder: Path) -> None:
    table = open_or_create(configured(folder))
    checkpoint = folder / "c"
    claim_checkpoint(str(checkpoint), pipeline="orders", table=table)
    (checkpoint / "metadata").write_text('{"id": "x"}')
    (checkpoint / "freshet.json").write_text("")
    with pytest.raises(ConfigurationError) as refused:
        claim_checkpoint(str(checkpoint), pipeline="orders", table=table)
    remedy = re.search(r"write into that file: (.*); else", str(refused.value))
    assert remedy is not None, refused.value  # removing the file would make the checkpoint a foreign one
    (checkpoint / "freshet.json").write_text(remedy[1])
    claim_checkpoint(str(checkpoint), pipeline="orders", table=table)


def test_checkpoints_that_cannot_be_used(folder: Path) -> None:
    (folder / "file").write_text("")
    (problem,) = found(folder, ("/c", "/file/c"))
    assert problem.startswith("p.yaml:11: checkpoint: ")
    table = open_or_create(configured(folder))
    with pytest.raises(ConfigurationError, match="checkpoint"):
        claim_checkpoint(str(folder / "file" / "c"), pipeline="orders", table=table)
    (folder / "theirs").mkdir()
    (folder / "theirs" / "metadata").write_text('{"id": "x"}')
    (problem,) = found(folder, ("/c", "/theirs"))
    assert "belongs to a streaming query that is not Freshet's" in problem


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        ("/others/mine", "would lie in another checkpoint, others:"),
        ("/others/offsets/deep/mine", "would lie in another checkpoint, others:"),
        ("/theirs/mine", "would lie in another checkpoint, theirs:"),
        ("/w/odd.db/t", "would lie in a table, w/odd.db/t:"),
        ("/w/odd.db/t/bucket-0/mine", "would lie in a table, w/odd.db/t:"),
        ("/all", "would have another checkpoint in it, all/others:"),
        ("/w/odd.db", "would have a table in it, w/odd.db/t:"),
        ("/w/_checkpoints/mine", None),
        ("/notes/mine", None),
        ("/mine", None),
    ],
)
def test_a_new_checkpoint_in_a_folder_that_is_another_s(folder: Path, checkpoint: str, said: str | None) -> None:
    """One that is there goes on, wherever it lies."""
    other = Catalog(folder / "w").create_table("odd.t", schema={"id": "INT"})
    for name in ("others", "all/others"):
        claim_checkpoint(str(folder / name), pipeline="others", table=other)
    for name, text in (("theirs", '{"id": "x"}'), ("notes", "of somebody")):
        (folder / name).mkdir()
        (folder / name / "metadata").write_text(text)
    problems = found(folder, ('"FOLDER/c"', f'"FOLDER{checkpoint}"'))
    assert [(said or "") in text for text in problems] == [True] * (said is not None)
    assert all(f"checkpoint {checkpoint[1:]} {said}" in text and "beside it" in text for text in problems)
    mine = folder / checkpoint[1:]
    mine.mkdir(parents=True, exist_ok=True)
    table = open_or_create(configured(folder))
    if said is not None:
        with pytest.raises(ConfigurationError, match="choose a folder beside it"):
            claim_checkpoint(str(mine), pipeline="orders", table=table)
        owner = {"pipeline": "orders", "table": table.location, "created_ms": table.engine.created_ms()}
        (mine / "freshet.json").write_text(json.dumps(owner))
    claim_checkpoint(str(mine), pipeline="orders", table=table)


def test_folders_in_which_nothing_can_be_made(folder: Path) -> None:
    """Root has every right, and still makes nothing under /proc."""
    if not Path("/proc/self").exists():
        missing("/proc", "run this test on Linux")
    (problem,) = found(folder, ("FOLDER/c", "/proc/c"))
    assert problem.startswith("p.yaml:11: checkpoint: checkpoint /proc/c cannot be written: ")
    (problem,) = found(folder, ("FOLDER/w", "/proc/w"))
    assert problem.startswith("p.yaml:6: table.warehouse: /proc/w cannot be written: ")


def test_the_table_of_a_checkpoint_was_dropped(folder: Path) -> None:
    config = configured(folder)
    claim_checkpoint(config.checkpoint, pipeline="orders", table=open_or_create(config))
    assert found(folder) == []
    Catalog(config.table.warehouse).drop_table("shop.orders")
    (problem,) = found(folder)
    assert "which is not there (it may have been dropped or renamed)" in problem


def test_the_dead_letter_table_must_be_one(folder: Path) -> None:
    catalog = Catalog(folder / "w")
    catalog.create_table("shop.orders_dead_letters", schema={"id": "INT"})
    (problem,) = found(folder)
    assert "table shop.orders_dead_letters is no dead-letter table (its columns: id)" in problem


def committed(folder: Path, name: str, query_id: str) -> None:
    table = Catalog(folder / "w").table(name)
    Committer(table.store, "orders", query_id).commit(3, [])
    table.store.env.finish_later()  # expiry writes a hint after the commit has returned


def test_starting_over_with_the_old_dead_letters_is_found(folder: Path) -> None:
    Catalog(folder / "w").create_table("shop.orders_dead_letters", schema=DEAD_LETTER_COLUMNS, options={"bucket": "-1"})
    assert found(folder) == []
    committed(folder, "shop.orders_dead_letters", "first")
    (problem,) = found(folder)
    assert "dead_letters: table shop.orders_dead_letters holds commits that an earlier query made" in problem
    assert "Name another table under dead_letters" in problem
    assert found(folder, ("name: orders", "name: orders2")) == []


def test_a_table_with_a_log_is_taken_on_again(folder: Path) -> None:
    """The checkpoint goes with the table: nothing is wrong, and nothing of the log is needed to see that."""
    log = "options: {bucket: 1, log.system: kafka, kafka.bootstrap.servers: '127.0.0.1:1', kafka.topic: t}"
    logged = (("options: {bucket: 1}", log), ("log.system: kafka", "changelog-producer: lookup, log.system: kafka"))
    config = configured(folder, *logged)
    table = open_or_create(config)
    assert found(folder, *logged) == []
    committed(folder, "shop.orders", "first")
    claim_checkpoint(config.checkpoint, pipeline="orders", table=table)
    metadata = folder / "c" / "metadata"
    metadata.write_text(json.dumps({"id": "first"}))
    assert found(folder, *logged) == []
    metadata.write_text(json.dumps({"id": "second"}))
    (problem,) = found(folder, *logged)
    assert "the checkpoint belongs to query second" in problem
    assert "the table then needs another kafka.topic" in problem


def test_a_log_that_somebody_else_writes_is_found(folder: Path) -> None:
    with fake_kafka():
        table = make_logged(folder / "w")
        with table.writer("first") as writer:
            writer.write(rows("+I 1 a"))
            writer.commit()
        same = (
            ("name: shop.orders", "name: db.t"), ("{id: BIGINT, total: INT}", "{k: BIGINT, v: STRING}"),
            ("primary_key: [id]", "primary_key: [k]"),
        )  # fmt: skip
        (problem,) = found(folder, *same)
        assert problem.startswith("p.yaml:7: table.name: 'first' writes the log of table db.t")
        assert "SET TBLPROPERTIES ('kafka.topic' = '…')" in problem
        table.alter(SetOption("kafka.topic", "another"))
        assert found(folder, *same) == []


def test_a_checkpoint_that_was_deleted_is_found(folder: Path) -> None:
    config = configured(folder)
    table = open_or_create(config)
    with table.writer("other") as writer:
        writer.write(pa.table({"id": [1], "total": pa.array([1], pa.int32())}))
        writer.commit(1)
    assert found(folder) == []
    committed(folder, "shop.orders", "first")
    (problem,) = found(folder)
    assert problem.startswith("p.yaml:11: checkpoint: table shop.orders holds commits that an earlier query made")
    claim_checkpoint(config.checkpoint, pipeline="orders", table=table)
    metadata = folder / "c" / "metadata"
    metadata.write_text(json.dumps({"id": "first"}))
    assert found(folder) == []
    metadata.write_text(json.dumps({"id": "second"}))
    (problem,) = found(folder)
    assert "the checkpoint belongs to query second" in problem


def test_half_a_checkpoint_under_the_encoded_name_is_found(folder: Path) -> None:
    uri = ("FOLDER/c", (folder / "a b" / "c").as_uri())
    table = open_or_create(configured(folder, uri))
    claim_checkpoint(str(folder / "a b" / "c"), pipeline="orders", table=table)
    committed(folder, "shop.orders", "q-1")
    other = folder / "a%20b" / "c"
    other.mkdir(parents=True)
    (other / "metadata").write_text('{"id": "q-1"}')
    (problem,) = found(folder, uri)
    remedy = "An earlier version has left a part of it in a%20b/c: move what is there into a b/c, and remove a%20b/c"
    assert problem.endswith(remedy)
    (other / "metadata").rename(folder / "a b" / "c" / "metadata")
    assert found(folder, uri) == []


def test_options_of_the_file_that_the_table_does_not_have_are_reported(folder: Path) -> None:
    open_or_create(configured(folder))
    assert warnings_before_start(configured(folder)) == []
    changed = configured(
        folder, ("bucket: 1", "bucket: 1, num-sorted-run.stop-trigger: 9, kafka.sasl.password: hunter2")
    )
    found = warnings_before_start(changed)
    assert [text.partition(" is not set there")[0].rpartition(" ")[2] for text in found] == [
        "num-sorted-run.stop-trigger", "kafka.sasl.password",
    ]  # fmt: skip
    assert "ALTER TABLE shop.orders SET TBLPROPERTIES ('num-sorted-run.stop-trigger' = '9')" in found[0]
    assert "hunter2" not in found[1]


def test_a_new_table_without_a_number_of_buckets_is_dynamic(folder: Path) -> None:
    without = configured(folder, ("options: {bucket: 1}", "options: {}"))
    assert problems_before_start(without) == []
    found = warnings_before_start(without)
    assert [text for text in found if "will be created with dynamic buckets (bucket=-1, the default)" in text]
    assert open_or_create(without).options.has_dynamic_buckets
    (rest,) = warnings_before_start(without)
    assert "let no other program add keys" in rest
    named = configured(folder, ("options: {bucket: 1}", "options: {bucket: -1}"))
    assert problems_before_start(named) == []
    fixed = configured(folder)
    (problem,) = problems_before_start(fixed)
    assert "option bucket is not set there and 1 in the file" in problem.message


MOVING = (
    ("total: INT", "total: INT NOT NULL"),
    ("primary_key: [id]", "primary_key: [id]\n  partition_by: [total]"),
    ("options: {bucket: 1}", "options: {}"),
)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_table_whose_rows_move_has_one_writer(folder: Path, is_there: bool) -> None:
    moving = configured(folder, *MOVING)
    if is_there:
        open_or_create(moving)
    assert problems_before_start(moving) == []
    (warning,) = warnings_before_start(moving)
    assert "rows of this table move between partitions" in warning
    assert "let no other program write it" in warning
    assert "add keys" not in warning


def test_the_library_of_a_table_whose_rows_move_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.place_index.index_database.is_rocksdb_installed", lambda: False)
    assert found(folder) == []
    (problem,) = found(folder, *MOVING)
    assert re.match(r"p\.yaml:9: table\.primary_key: .* move between partitions, .*freshet-lake\[rocksdb\]", problem)


def test_rows_of_postponed_buckets_wait(folder: Path) -> None:
    waiting = configured(folder, ("options: {bucket: 1}", "options: {bucket: -2}"))
    assert problems_before_start(waiting) == []
    assert [text for text in warnings_before_start(waiting) if "wait, and scans and lookups do not show them" in text]


def test_a_table_that_is_there_keeps_its_buckets(folder: Path) -> None:
    open_or_create(configured(folder))
    without = configured(folder, ("options: {bucket: 1}", "options: {}"))
    assert problems_before_start(without) == []
    assert warnings_before_start(without) == []
    assert with_table(without).table.core_options.bucket == 1


def test_a_damaged_table_is_no_mistake_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TEXT.replace("FOLDER", str(tmp_path)))
    (tmp_path / "in").mkdir()
    config = load_pipeline(tmp_path / "p.yaml", {})
    table = open_or_create(config)
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit(1)
    (Path(table.location) / "snapshot" / "snapshot-1").write_text("{")
    refused = ConfigurationError(problems_before_start(config))
    assert (refused.kind, refused.exit_code) == (ErrorKind.CORRUPT_DATA, 65)
    assert {problem.path for problem in refused.problems} == {str(tmp_path / "p.yaml")}
