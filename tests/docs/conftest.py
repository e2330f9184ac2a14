"""Pages share the session of Spark."""

from __future__ import annotations

from tests.kit.spark import spark

__all__ = ["spark"]
