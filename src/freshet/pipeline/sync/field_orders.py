"""The orders in which records have the fields of a table: by them a swap of names is seen that was told too late. Pure.

A rename comes too late where records that have the new name were written before its statement was read. Then the table
has a column of that name already, and stays as it is. Not so where columns swap their names, which were there before:

    columns a, b ── records with a, b ── records with b, a, written by their names ── {a: b, b: a} ── columns b, a

The table follows the statement, and the rows in between have the two values exchanged. All that tells them is the order
of their fields. An order that no statement explains is kept, until one does:

| the order is that of the columns | it is explained by |
|---|---|
| before the statement | a change that renames nothing, such as `MODIFY … AFTER` |
| behind the statement | the statement, which came too late |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

ORDERS_MAX: Final = 10
"""Of one table; more are not kept."""


class SeenOrder(NamedTuple):
    """The fields of a record, and the place of it."""

    names: tuple[str, ...]
    where: str


def is_in_order(names: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether those of the names that are columns stand in the order of these."""
    places = {name: place for place, name in enumerate(columns)}
    order = [places[name] for name in names if name in places]
    return all(earlier < later for earlier, later in pairwise(order))


def is_order_of(names: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether all of the names are columns, in this order."""
    return set(names) <= set(columns) and is_in_order(names, columns)


def judged(
    orders: Iterable[SeenOrder], before: Sequence[str], columns: Sequence[str]
) -> tuple[tuple[SeenOrder, ...], tuple[SeenOrder, ...]]:
    """The orders that a statement does not explain, and those by which it came too late."""
    kept, late = [], []
    known = {*before, *columns}
    for order in orders:
        names = [name for name in order.names if name in known]
        if is_order_of(names, before):
            continue
        if is_order_of(names, columns):
            late.append(order)
        else:
            kept.append(order)
    return tuple(kept), tuple(late)
