"""The columns that an option of a table names, in its key or its value: renames follow it, drops ask it.

| option | names columns |
|---|---|
| declared as names or as a column (`sequence.field`, `record-level.time-field`) | in its value, between commas |
| of other programs (`OF_OTHERS`) | so, too |
| `fields.<columns>.<option>`, `fields.<columns>.sequence-group` | in its key; in its value, too |
| `file-index.<kind>.columns`, `file-index.<kind>.<column>.<parameter>` | in its value; in its key |
| `parquet.<option>#<column>` | behind the sign |

Options `file-index.…` say which columns of a table get indexes in its data files (`indexed_columns`):

    file-index.bloom-filter.columns = id,name
    file-index.bloom-filter.id.items = 200000        a parameter of one column

Source: FORMAT.md §11.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from freshet._frozen import Frozen, field
from freshet.storage.options.declaration import OPTIONS
from freshet.storage.options.option import COLUMN, COLUMN_NAMES, NAMES, RAW_NAMES

Rename = Callable[[str], str]

INDEX_PREFIX: Final = "file-index."
INDEX_KINDS: Final = frozenset({"bloom-filter", "bitmap", "range-bitmap"})
"""Types of indexes that are written and read; others are passed over."""

_COLUMNS: Final = ".columns"

OF_OTHERS: Final = frozenset(
    """
    blob-descriptor-field blob-field blob-view-field blob.stored-descriptor-fields clustering.columns
    orc.bloom.filter.columns pk-bitmap.index.columns pk-btree.index.columns pk-full-text.index.columns
    pk-vector.index.columns sink.clustering.by-columns upsert-key vector-field
    """.split()  # noqa: SIM905
)
_DECLARED: Final = frozenset(
    name
    for key, option in OPTIONS.items()
    if any(option.kind is kind for kind in (COLUMN, COLUMN_NAMES, NAMES, RAW_NAMES))
    for name in (key, *option.former)
)
_FIELDS: Final = "fields."
GROUP: Final = "sequence-group"


def columns_named(key: str, value: str, columns: Collection[str]) -> frozenset[str]:
    """The columns among these that the option names."""
    found: set[str] = set()

    def note(name: str) -> str:
        found.add(name)
        return name

    with_names(key, value, columns, note)
    return frozenset(found & set(columns))


def with_names(key: str, value: str, columns: Collection[str], rename: Rename) -> tuple[str, str]:
    """The option with other names of columns."""
    if key in _DECLARED or key in OF_OTHERS:
        return key, _in_list(value, rename)
    if key.startswith(INDEX_PREFIX):
        return _with_index_names(key, value, rename)
    if key.startswith(_FIELDS):
        of, name = split_key(key, columns)
        if name == GROUP:
            value = _in_list(value, rename)
        return (f"{_FIELDS}{_in_list(of, rename)}.{name}" if name else key), value
    option, sign, column = key.partition("#")
    return (f"{option}#{rename(column)}" if sign else key), value


def split_key(key: str, columns: Collection[str]) -> tuple[str, str]:
    """Column (or columns) and option of `fields.…`; the longest column that fits, as names may hold dots."""
    rest = key.removeprefix(_FIELDS)
    for dot in sorted((i for i, letter in enumerate(rest) if letter == "."), reverse=True):
        if all(name in columns for name in rest[:dot].split(",")):
            return rest[:dot], rest[dot + 1 :]
    column, _, name = rest.partition(".")
    return column, name


def _in_list(text: str, rename: Rename) -> str:
    """A list of names, with the blanks around them; one that is a name with its blanks is that name."""
    return ",".join(_renamed(item, rename) for item in text.split(","))


def _renamed(item: str, rename: Rename) -> str:
    whole = rename(item)
    name = item.strip()
    return whole if whole != item or not name else item.replace(name, rename(name))


class IndexedColumn(Frozen):
    """One index of one column."""

    kind: str
    column: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    """By the last part of their keys."""

    def key(self, parameter: str) -> str:
        """The option of a parameter."""
        return f"{INDEX_PREFIX}{self.kind}.{self.column}.{parameter}"


def is_list_of_columns(key: str) -> bool:
    """Whether the option says which columns have indexes of a kind."""
    return key.startswith(INDEX_PREFIX) and key.endswith(_COLUMNS)


def indexed_columns(given: Mapping[str, str]) -> tuple[IndexedColumn, ...]:
    """What the options of a table ask for, in the order of their keys."""
    found = []
    for key in sorted(given):
        if is_list_of_columns(key):
            kind = key[len(INDEX_PREFIX) : -len(_COLUMNS)]
            for column in filter(None, (name.strip() for name in given[key].split(","))):
                start = f"{INDEX_PREFIX}{kind}.{column}."
                parameters = {name[len(start) :]: text for name, text in given.items() if name.startswith(start)}
                found.append(IndexedColumn(kind, column, parameters))
    return tuple(found)


def parameters_without_index(given: Mapping[str, str]) -> list[str]:
    """Keys of parameters of columns that have no index of their kind. Apache Paimon does not open such a table."""
    indexed = {(index.kind, index.column) for index in indexed_columns(given)}
    found = []
    for key in sorted(given):
        if key.startswith(INDEX_PREFIX) and not key.endswith(_COLUMNS):
            kind, column = _place(key)
            if column and (kind, column) not in indexed:
                found.append(key)
    return found


def _with_index_names(key: str, value: str, rename: Rename) -> tuple[str, str]:
    """An option of indexes with other names of columns."""
    if is_list_of_columns(key):
        return key, ",".join(_with_name(item.strip(), rename) for item in value.split(","))
    kind, column = _place(key)
    if column:
        return f"{INDEX_PREFIX}{kind}.{_with_name(column, rename)}.{key.rpartition('.')[2]}", value
    return key, value


def _with_name(item: str, rename: Rename) -> str:
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
    kind, _, rest = key.removeprefix(INDEX_PREFIX).partition(".")
    return kind, rest.rpartition(".")[0]
