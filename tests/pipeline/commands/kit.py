"""The command called in this process: starting one takes longer than what it does."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.commands.command_line import main


def fake_java(home: Path, version: str) -> Path:
    """A folder for JAVA_HOME whose Java knows its version and nothing else."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho \'openjdk version "{version}" 2019-01-15\' >&2\n[ "$1" = -version ]\n')
    java.chmod(0o755)
    return home


@dataclass(frozen=True)
class Called:
    """What a call returned and printed."""

    code: int
    out: str
    err: str

    @property
    def facts(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Freshet:
    """Runs the command; a traceback fails the test unless --debug asks for one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> Called:
        self._monkeypatch.setattr(sys, "argv", ["freshet", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capsys.readouterr()
        assert "--debug" in arguments or "Traceback" not in said.err
        assert isinstance(ended.value.code, int)
        return Called(ended.value.code, said.out, said.err)

    def good(self, *arguments: object) -> Called:
        """The same, for calls that must succeed."""
        called = self(*arguments)
        assert called.code == 0, called.err
        return called
