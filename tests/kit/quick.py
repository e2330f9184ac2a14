"""What `make test` runs of a long list of cases; the others run with the marker `slow`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def some_now(cases: Iterable[Any], stride: int = 2, *, first: int = 0) -> list[Any]:
    """All of them as parameters (those of several names as tuples): each `stride`th for the quick suites, others slow.

    A stride that has no factor in common with the numbers of a product's values goes through all of them in turn.
    """
    return those_now(cases, lambda number, case: number % stride == first)


def those_now(cases: Iterable[Any], is_quick: Callable[[int, Any], bool]) -> list[Any]:
    """The same, chosen by their number and what they are."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if is_quick(number, case) else pytest.mark.slow,
        )
        for number, case in enumerate(cases)
    ]
