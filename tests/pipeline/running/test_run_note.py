"""What a run notes of itself: how often, and what stands there."""

from __future__ import annotations

import json
from pathlib import Path

from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.identity.checkpoint_owner import OWNER_FILE
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.running.progress import PipelineState, Progress
from freshet.pipeline.running.run_note import BEAT_EVERY_MS, RunNotes, RunState, read_note

FILE = """\
name: a
run_on: local
sources: [{files: {path: "FOLDER/in"}, format: json}]
table: {warehouse: "FOLDER/w", name: s.a, columns: {id: BIGINT}, primary_key: [id]}
checkpoint: "FOLDER/c"
"""


def test_what_is_noted_and_when(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(FILE.replace("FOLDER", str(tmp_path)))
    config, folder, now_ms = load_pipeline(file), LocalCheckpoint(tmp_path / "c"), [1_000]
    notes = RunNotes([config], lambda each: each.checkpoint, lambda: now_ms[0])
    notes.look()
    assert read_note(folder) is None, "nobody owns the folder yet"
    folder.replace(OWNER_FILE, json.dumps({"pipeline": "a"}))

    def state_after(ms: int) -> RunState | None:
        now_ms[0] += ms
        notes.look()
        note = read_note(folder)
        return None if note is None else note.state

    assert state_after(BEAT_EVERY_MS) is RunState.STARTING
    notes.take(Progress(BatchReport("a", 7), 0.0, 3, 5.0))
    assert state_after(1_000) is RunState.STARTING, "two seconds apart at most"
    assert state_after(1_000) is RunState.RUNNING
    note = read_note(folder)
    assert note is not None and (note.batch, note.lag_records, note.time_ms) == (7, 3, now_ms[0])
    notes.idle("a")
    assert state_after(5_000) is RunState.IDLE
    written_ms = now_ms[0]
    assert state_after(5_000) is RunState.IDLE
    note = read_note(folder)
    assert note is not None and note.time_ms == written_ms, "nothing new, and no beat is due"
    notes.state(PipelineState("a", 8, ErrorKind.RETRYABLE, "broker away", is_retryable=True))
    assert state_after(5_000) is RunState.FAILED
    notes.end(PipelineFailedError("it broke", pipeline="a"))
    note = read_note(folder)
    assert note is not None and (note.state, note.error) == (RunState.FAILED, "pipeline 'a': it broke")
