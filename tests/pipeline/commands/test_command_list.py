"""The list of commands says what their modules say."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from freshet.pipeline.commands.command_list import COMMANDS, summary_of
from tests.kit.json_shapes import shape_of


@pytest.mark.parametrize("name", COMMANDS)
def test_the_text_is_the_first_paragraph_of_the_function(name: str) -> None:
    module = import_module(f"freshet.pipeline.commands.{COMMANDS[name]}")
    text = inspect.getdoc(getattr(module, name.replace("-", "_"))) or ""
    assert summary_of(name) == " ".join(text.partition("\n\n")[0].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_json_of_a_command_is_written_down(name: str) -> None:
    """Each command with --json has its form in docs/reference/json-output.md, by which calls in tests are checked."""
    function = getattr(import_module(f"freshet.pipeline.commands.{COMMANDS[name]}"), name.replace("-", "_"))
    if "as_json" in inspect.signature(function).parameters:
        assert shape_of([name, "lost-commit"]) is not None
