"""Every commit of a test, and of the processes that it starts, is checked before its claim; a plugin."""

from __future__ import annotations

import os

import pytest

from freshet.storage.io.env import CHECK_CLAIMS, Env

os.environ.setdefault(CHECK_CLAIMS, "1")
Env.checks_claims = os.environ[CHECK_CLAIMS] == "1"


@pytest.fixture
def unchecked_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of this process are not checked: they count their calls, damage a table, or have no data files."""
    monkeypatch.setattr(Env, "checks_claims", False)
