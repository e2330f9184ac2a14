"""Steps of several runs on one checkpoint, in any order: no batch has two plans, and none is begun before another."""

from __future__ import annotations

from uuid import uuid4

import hypothesis.strategies as st
from hypothesis import given, settings

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.store_checkpoint import StoreCheckpoint
from freshet.pipeline.local.stream_checkpoint import StreamCheckpoint
from tests.kit.hypothesis_profile import examples

KINDS = ("start", "plan", "plan", "commit", "commit")
STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS)), max_size=60)


@settings(max_examples=examples(100))
@given(STEPS)
def test_steps_of_three_runs(steps: list[tuple[int, str]]) -> None:
    """A run that starts takes the place of the one of its number, which has died where it was."""
    folder = StoreCheckpoint(f"memory://{uuid4()}/c", {})
    runs: dict[int, StreamCheckpoint] = {}
    plans: dict[int, tuple[str | None, ...]] = {}
    ids, kinds = set(), set()
    for time_ms, (run, step) in enumerate(steps):
        log = runs.get(run)
        try:
            if step == "start":
                if log is not None:
                    log.close()
                runs[run] = StreamCheckpoint(folder, 1, {})
                ids.add(runs[run].query_id)
            elif log is not None and step == "plan" and not log.is_planned:
                log.plan([f'{{"of":{run},"at":{time_ms}}}'], time_ms)
                log.settle()
            elif log is not None and step == "commit" and log.is_planned:
                log.commit()
        except PipelineFailedError as error:
            kinds.add(error.kind)
            runs.pop(run).close()
        planned, done = sorted(folder.numbers("offsets")), sorted(folder.numbers("commits"))
        assert planned == list(range(len(planned))) and done == list(range(len(done)))
        assert 0 <= len(planned) - len(done) <= 1, "never two open batches"
        for number in planned:
            found = StreamCheckpoint(folder, 1, {}).offsets(number) or ()
            assert plans.setdefault(number, found) == found
    for log in runs.values():
        log.close()
    assert len(ids) <= 1 and kinds <= {ErrorKind.INVALID_REQUEST}
