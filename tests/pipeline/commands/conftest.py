"""Fixtures of the command's tests."""

from __future__ import annotations

import pytest

from tests.pipeline.commands.kit import Freshet


@pytest.fixture
def freshet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Freshet:
    return Freshet(monkeypatch, capsys)
