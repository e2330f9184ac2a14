"""A column is added for a field that records carry, and the pipeline file does not name it: the run says so."""

from __future__ import annotations

from pathlib import Path

from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.query.driver.unread_columns import carried_columns
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.progress_report import ProgressReporter
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from freshet.storage.schema.change import AddColumn
from tests.pipeline.small_pipeline import TEXT


def test_notes_of_the_decoder_tell() -> None:
    notes = {"unknown field note": 2, "unknown field a\\nb": 1, "TOAST value left NULL: kept": 1}
    assert carried_columns(["more", "note", "a\nb", "kept"], notes) == ("note", "a\nb")


def test_a_run_says_what_its_file_leaves_out(engine: PipelineEngine, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "p.yaml"
    path.write_text(TEXT.replace("FOLDER", str(tmp_path)))

    def run(name: str, text: str) -> list[str]:
        (tmp_path / "in" / name).write_text(text)
        remarks: list[str] = []
        reporter = ProgressReporter(lambda _: None, remarks.append, dead_letter_tables={})
        Runner(engine, [load_pipeline(path, {})], on_progress=reporter.take).run()
        return [remark for remark in remarks if "warning" in remark]

    table = Catalog(tmp_path / "w").create_table(
        "s.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    table = table.alter(AddColumn("note", "STRING"), AddColumn("more", "INT"))
    (warning,) = run("b.json", '{"id": 2, "note": "y", "other": 1}\n{"id": 3}\n')
    assert warning.startswith("orders: warning: records carry a field note, and the table has a column of that name")
    path.write_text(path.read_text().replace("{id: BIGINT}", "{id: BIGINT, note: STRING}"))
    assert run("c.json", '{"id": 4, "note": "z"}\n') == []
    rows = {row["id"]: row["note"] for row in table.scan().to_arrow().to_pylist()}
    assert rows == {2: None, 3: None, 4: "z"}
