"""What a test needs and does not find: a reason to skip it on a developer's machine, a failure in CI.

    missing("polars", "make frames")        within a test or a fixture

As a pytest plugin it turns every other skip in CI (where `CI` is set) into a failure as well: a skipped test would not
be noticed there.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import NoReturn

import pytest


def is_ci() -> bool:
    return bool(os.environ.get("CI"))


def missing(component: str, remedy: str) -> NoReturn:
    """Skips the test that needs the component, or fails it in CI; the remedy is a command or an action."""
    text = f"{component} is missing: {remedy}"
    if is_ci():
        pytest.fail(f"{text} (in CI nothing is skipped)", pytrace=False)
    pytest.skip(text)


def _as_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    if is_ci() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} would be skipped, and in CI nothing is: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _as_failure(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _as_failure(report)
    return report
