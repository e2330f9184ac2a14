"""Which columns of a table get indexes in its data files: the options `file-index.<type>.columns`.

    file-index.bloom-filter.columns = id,name
    file-index.bloom-filter.id.items = 200000        a parameter of one column

Source: FORMAT.md §11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from freshet._frozen import Frozen, field

PREFIX: Final = "file-index."
WRITTEN: Final = frozenset({"bloom-filter", "bitmap", "range-bitmap"})
"""Types of indexes that are written and read; others are passed over."""

_COLUMNS: Final = ".columns"


class IndexedColumn(Frozen):
    """One index of one column."""

    kind: str
    column: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    """By the last part of their keys."""

    def key(self, parameter: str) -> str:
        """The option of a parameter."""
        return f"{PREFIX}{self.kind}.{self.column}.{parameter}"


def is_list_of_columns(key: str) -> bool:
    """Whether the option says which columns have indexes of a kind."""
    return key.startswith(PREFIX) and key.endswith(_COLUMNS)


def indexed_columns(given: Mapping[str, str]) -> tuple[IndexedColumn, ...]:
    """What the options of a table ask for, in the order of their keys."""
    found = []
    for key in sorted(given):
        if is_list_of_columns(key):
            kind = key[len(PREFIX) : -len(_COLUMNS)]
            for column in filter(None, (name.strip() for name in given[key].split(","))):
                start = f"{PREFIX}{kind}.{column}."
                parameters = {name[len(start) :]: text for name, text in given.items() if name.startswith(start)}
                found.append(IndexedColumn(kind, column, parameters))
    return tuple(found)


def parameters_without_index(given: Mapping[str, str]) -> list[str]:
    """Keys of parameters of columns that have no index of their kind. Apache Paimon does not open such a table."""
    indexed = {(index.kind, index.column) for index in indexed_columns(given)}
    found = []
    for key in sorted(given):
        if key.startswith(PREFIX) and not key.endswith(_COLUMNS):
            kind, column = _place(key)
            if column and (kind, column) not in indexed:
                found.append(key)
    return found


def with_names(key: str, value: str, rename: Callable[[str], str]) -> tuple[str, str]:
    """An option of indexes with other names of columns."""
    if is_list_of_columns(key):
        return key, ",".join(_with_name(item.strip(), rename) for item in value.split(","))
    kind, column = _place(key)
    if column:
        return f"{PREFIX}{kind}.{_with_name(column, rename)}.{key.rpartition('.')[2]}", value
    return key, value


def _with_name(item: str, rename: Callable[[str], str]) -> str:
    name = _column(item)
    return rename(name) + item[len(name) :]


def is_part_of_map(column: str) -> bool:
    """Whether it is the value of one key in a map, `m[k]`."""
    return "[" in column and column.endswith("]")


def _column(item: str) -> str:
    """The column of `a`, or of the value of a key in a map, `m[k]`."""
    item = item.strip()
    return item.split("[")[0] if is_part_of_map(item) else item


def _place(key: str) -> tuple[str, str]:
    """Kind and column of a parameter, whose name may have dots; no column in `file-index.in-manifest-threshold`."""
    kind, _, rest = key.removeprefix(PREFIX).partition(".")
    return kind, rest.rpartition(".")[0]
