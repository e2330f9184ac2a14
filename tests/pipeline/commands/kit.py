"""The command called in this process: starting one takes longer than what it does."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.commands.command_line import main
from tests.kit.json_shapes import json_shapes, misfits, shape_of


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
        _check_json([str(each) for each in arguments], said.out, ended.value.code)
        return Called(ended.value.code, said.out, said.err)

    def good(self, *arguments: object) -> Called:
        """The same, for calls that must succeed."""
        called = self(*arguments)
        assert called.code == 0, called.err
        return called


def _check_json(arguments: list[str], out: str, code: int) -> None:
    """What is printed as JSON is of the form that the documentation has for the command, or for errors."""
    if "--json" not in arguments or not out:
        return
    decoder, place = json.JSONDecoder(), 0
    while (rest := out[place:].strip()) and rest[0] in "[{":
        place = len(out) - len(out[place:].lstrip())
        value, end = decoder.raw_decode(out[place:])
        place += end
        shape = json_shapes()["freshet failure"] if code and is_failure(value) else shape_of(arguments)
        if arguments[0] == "sql" and "done" not in value:  # an edit, or a row
            shape = json_shapes()["freshet append"] if "snapshots_removed" in value else "anything"
        assert shape is not None, f"docs/reference/json-output.md does not say what freshet {arguments[0]} prints"
        assert misfits(value, shape) == [], out


def is_failure(value: Any) -> bool:
    """Whether this is what commands print of an error that ends them."""
    return isinstance(value, dict) and "exit_code" in value and "pipelines" not in value
