"""The runner looks after queries that end at any moment: also just behind its look."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.running import runner
from freshet.pipeline.running.restarts import Restart, RestartRule
from freshet.pipeline.running.runner import Runner


class FailsBehindTheLook:
    """A pipeline whose query runs while the runner looks, and has failed right after; started again it reads all."""

    name = "a"
    micro_batch_id = 3

    def __init__(self, *_: Any) -> None:
        self.failure: PipelineFailedError | None = None
        self.waits_until_s: float | None = None
        self.starts = 1
        self.is_active = True

    @property
    def is_over(self) -> bool:
        return self.waits_until_s is None and not self.is_active

    def take_failure(self) -> PipelineFailedError | None:
        if self.starts > 1:
            self.is_active = False
            return None
        if self.is_active:
            self.is_active = False
            return None
        return PipelineFailedError("cut off", pipeline="a", kind=ErrorKind.RETRYABLE)

    def wait_by(self, rule: RestartRule) -> Restart:
        self.waits_until_s = 0.0
        return Restart(1, 0.0)

    def restart(self) -> None:
        self.waits_until_s, self.is_active = None, True
        self.starts += 1

    def close(self) -> None:
        pass


def test_a_query_that_fails_behind_the_look_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FailsBehindTheLook] = []

    def make(*given: Any) -> FailsBehindTheLook:
        made.append(FailsBehindTheLook(*given))
        return made[-1]

    class Config:
        name = "a"

    monkeypatch.setattr(runner, "RunningPipeline", make)
    engine: Any = SimpleNamespace(poll_s=0.0, errors=())
    configs: Any = [Config()]
    Runner(engine, configs, restarts=RestartRule(3))._watch()
    assert made[0].starts == 2
    assert made[0].failure is None
