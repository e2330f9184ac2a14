"""Fixtures of the suites about upgrades."""

from __future__ import annotations

from tests.kit.spark import spark

__all__ = ["spark"]
