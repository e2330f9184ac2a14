"""The columns that an option of a table names, in its key or its value: renames follow it, drops ask it.

| option | names columns |
|---|---|
| declared as names or as a column (`sequence.field`, `record-level.time-field`) | in its value, between commas |
| of other programs (`OF_OTHERS`) | so, too |
| `fields.<columns>.<option>`, `fields.<columns>.sequence-group` | in its key; in its value, too |
| `file-index.<kind>.columns`, `file-index.<kind>.<column>.<parameter>` | in its value; in its key |
| `parquet.<option>#<column>` | behind the sign |
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from freshet.storage.options import file_indexes
from freshet.storage.options.declaration import OPTIONS
from freshet.storage.options.option import COLUMN, COLUMN_NAMES, NAMES, RAW_NAMES

Rename = Callable[[str], str]

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
    if key.startswith(file_indexes.PREFIX):
        return file_indexes.with_names(key, value, rename)
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
