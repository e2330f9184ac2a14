"""A value that is the same still travels as the same bytes, and is made once by each process."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from freshet.pipeline.query.wire.kept_value import KeptValue


@dataclass(frozen=True)
class _Plan:
    columns: tuple[str, ...]


def test_what_is_the_same_is_unpickled_once() -> None:
    kept = KeptValue(_Plan(("id", "name")))
    again = kept.following(_Plan(("id", "name")))
    assert again is kept
    first, second = (pickle.loads(pickle.dumps(each)) for each in (kept, again))
    assert first is second
    assert first.value == kept.value
    assert pickle.loads(pickle.dumps(first)) is first


def test_what_has_changed_travels_anew() -> None:
    kept = KeptValue(_Plan(("id",)))
    pickle.dumps(kept)
    other = kept.following(_Plan(("id", "name")))
    assert pickle.loads(pickle.dumps(other)).value == _Plan(("id", "name"))
    assert pickle.loads(pickle.dumps(kept)).value == _Plan(("id",))
