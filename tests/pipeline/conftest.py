"""Fixtures of the pipeline's tests."""

from __future__ import annotations

from tests.kit.spark import spark

__all__ = ["spark"]
