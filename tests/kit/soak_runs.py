"""A pytest plugin: which runs have the tests with the marker `soak`, and what they say in order to be repeated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak import counts

FOLDER = Path(counts.__file__).parent


def is_soak(config: pytest.Config) -> bool:
    """Whether this run is asked for them: by `-m` or by a path."""
    paths = [Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args]
    return "soak" in config.option.markexpr or any(path.is_relative_to(FOLDER) for path in paths)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(counts.SEED, str(counts.new_seed()))
    counts.share()  # a wrong text is reported at once


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [counts.remark()] if is_soak(config) else []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_soak(config):
        return
    left = [item for item in items if item.get_closest_marker("soak") is not None]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if is_soak(config):
        terminalreporter.write_line(counts.remark())
