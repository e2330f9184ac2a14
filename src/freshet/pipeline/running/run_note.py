"""What a run says of itself beside the checkpoint, for who asks elsewhere: `freshet-status.json`.

It is written by the thread that looks after the pipelines, never by a batch, `WRITE_EVERY_MS` apart at most and at
least every `BEAT_EVERY_MS`: where the last one is older than `BEAT_LOST_MS`, the run is gone, whatever it said. A note
that cannot be written stops nothing. All else about a pipeline is in its tables and its checkpoint.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from enum import StrEnum
from typing import Any, Final

import orjson

from freshet._frozen import Frozen, field
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.decode.careful import UNKNOWN_NOTE
from freshet.pipeline.exceptions import PipelineError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, CheckpointPlace, as_folder
from freshet.pipeline.identity.checkpoint_owner import OWNER_FILE
from freshet.pipeline.running.progress import PipelineState, Progress
from freshet.storage.exceptions import StorageError

STATUS_FILE: Final = "freshet-status.json"
WRITE_EVERY_MS: Final = 2_000
BEAT_EVERY_MS: Final = 15_000
BEAT_LOST_MS: Final = 60_000
FIELDS_MAX: Final = 16

_LOG: Final = logging.getLogger(__name__)


class RunState(StrEnum):
    """What a run is doing, in its own words; and what is concluded where it says nothing."""

    STARTING = "starting"
    RUNNING = "running"
    IDLE = "idle"
    """It waits for records."""
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"
    GONE = "gone"
    """It has ended without a word: killed, or cut off from its checkpoint."""
    UNKNOWN = "unknown"
    """No run has said anything."""

    @property
    def is_up(self) -> bool:
        """Whether it reads, or is about to."""
        return self in (RunState.STARTING, RunState.RUNNING, RunState.IDLE)


class RunNote(Frozen):
    """One note; times are milliseconds since the epoch."""

    state: RunState
    time_ms: int
    started_ms: int
    host: str = ""
    process_id: int = 0
    batch: int | None = None
    batch_done_ms: int | None = None
    """When that batch was done."""
    lag_records: int | None = None
    """Records that waited at the source when it was planned."""
    last_event_ms: int | None = None
    """The time of its latest record at the source."""
    error: str | None = None
    unknown_fields: Mapping[str, int] = field(default_factory=dict)
    """Of this run: fields that records have and the table does not, with how often, `FIELDS_MAX` at most."""


def read_note(checkpoint: CheckpointFolder) -> RunNote | None:
    """The last note of a run; None where there is none, or none of this release. What cannot be reached raises
    `OSError` or `StorageError`."""
    text = checkpoint.read(STATUS_FILE)
    try:
        source: dict[str, Any] = orjson.loads(text or "null") or {}
        known = {each.name for each in fields(RunNote)}
        return RunNote(**{**{k: v for k, v in source.items() if k in known}, "state": RunState(source["state"])})
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def _more(known: Mapping[str, int], notes: Mapping[str, int]) -> Mapping[str, int]:
    new = {name[len(UNKNOWN_NOTE) :]: count for name, count in notes.items() if name.startswith(UNKNOWN_NOTE)}
    if not new:
        return known
    kept = [*known, *(name for name in new if name not in known)][:FIELDS_MAX]
    return {name: known.get(name, 0) + new.get(name, 0) for name in kept}


class RunNotes:
    """The notes of the pipelines of one process. Takes what they report from any thread; `look` writes."""

    def __init__(
        self,
        configs: Sequence[PipelineConfig],
        checkpoint_of: Callable[[PipelineConfig], CheckpointPlace],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._clock_ms = clock_ms
        self._checkpoint_of = checkpoint_of
        self._configs = {config.name: config for config in configs}
        now_ms = clock_ms()
        first = RunNote(RunState.STARTING, now_ms, now_ms, socket.gethostname(), os.getpid())
        self._notes = {config.name: first for config in configs}
        self._written: dict[str, RunNote] = {}
        self._owners: set[str] = set()
        self._has_warned = False

    def take(self, progress: Progress) -> None:
        """A batch is done."""
        report = progress.report
        times = report.result.read.times
        known = self._notes[report.pipeline]
        self._notes[report.pipeline] = replace(
            known,
            state=RunState.RUNNING,
            batch=report.micro_batch_id,
            batch_done_ms=self._clock_ms(),
            lag_records=progress.lag,
            last_event_ms=known.last_event_ms if times is None else times.last_ms,
            error=None,
            unknown_fields=_more(known.unknown_fields, report.result.notes),
        )

    def idle(self, pipeline: str, lag: int | None = None) -> None:
        """A pipeline waits for records."""
        self._notes[pipeline] = replace(self._notes[pipeline], state=RunState.IDLE, lag_records=lag or 0)

    def state(self, state: PipelineState) -> None:
        """A pipeline does not run."""
        word = RunState.FAILED if state.restart is None else RunState.RESTARTING
        self._notes[state.pipeline] = replace(self._notes[state.pipeline], state=word, error=state.error)

    def look(self) -> None:
        """Writes what is due."""
        now_ms = self._clock_ms()
        for name, note in list(self._notes.items()):
            written = self._written.get(name)
            since_ms = BEAT_EVERY_MS if written is None else now_ms - written.time_ms
            is_other = written is None or replace(note, time_ms=written.time_ms) != written
            if since_ms >= BEAT_EVERY_MS or (is_other and since_ms >= WRITE_EVERY_MS):
                self._write(name, replace(note, time_ms=now_ms))

    def end(self, error: BaseException | None = None) -> None:
        """The run is over."""
        now_ms = self._clock_ms()
        for name, note in self._notes.items():
            failed = isinstance(error, PipelineFailedError) and error.pipeline in (None, name)
            if failed:
                note = replace(note, state=RunState.FAILED, error=self._configs[name].without_secrets(str(error)))
            elif note.state is not RunState.FAILED:
                note = replace(note, state=RunState.STOPPED)
            if note.batch is not None or name in self._written:  # else it has never begun
                self._write(name, replace(note, time_ms=now_ms))

    def _is_owner(self, name: str, folder: CheckpointFolder) -> bool:
        """One that was refused leaves the checkpoint of another alone."""
        if name not in self._owners:
            owner = orjson.loads(folder.read(OWNER_FILE) or "{}")
            if owner.get("pipeline") == name:
                self._owners.add(name)
        return name in self._owners

    def _write(self, name: str, note: RunNote) -> None:
        self._written[name] = note
        try:
            folder = as_folder(self._checkpoint_of(self._configs[name]))
            if folder is not None and self._is_owner(name, folder):
                folder.replace(STATUS_FILE, orjson.dumps(asdict(note)).decode())
        except (OSError, ValueError, StorageError, PipelineError) as failure:
            if not self._has_warned:
                _LOG.warning("%s: `freshet status` elsewhere will not know of this run: %s", name, failure)
            self._has_warned = True
