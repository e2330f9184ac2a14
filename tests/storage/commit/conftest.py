"""Calls and bytes are counted as if the tables of a test were the only ones of the process."""

from __future__ import annotations

import pytest

from freshet.storage.io.sized_cache import SharedBound
from freshet.storage.metadata import manifest_store, snapshot_store


@pytest.fixture(autouse=True)
def own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What thousands of tests before have left in this process does not count."""
    monkeypatch.setattr(snapshot_store, "CACHED_SNAPSHOTS", SharedBound(4096, 128))
    monkeypatch.setattr(manifest_store, "CACHED_ENTRIES", SharedBound(200_000, 3_000))
    monkeypatch.setattr(manifest_store, "CACHED_METAS", SharedBound(20_000, 600))
