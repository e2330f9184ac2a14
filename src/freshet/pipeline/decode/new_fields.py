"""Fields that records have and their table does not: what the records say of their types.

Decoders count them by name. Where they are to become columns, a few of the records that have them are read by the
careful path, for their schema or, without one, for their values.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.avro.wire import HEAD_BYTES
from freshet.pipeline.decode.careful import UNKNOWN_NOTE, shown_name
from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.described_table import DescribedTable, describe_records, is_column_name
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.plan import DecodePlan

SAMPLE: Final = 200
"""Records whose values are looked at, where types are guessed: each takes 20 µs by the careful path."""
TYPED_SAMPLE: Final = 3
"""The same of records that bring a schema."""

_SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""The characters that JSON escapes by one."""
_SHOWN_ESCAPE: Final = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4}|[nrt\\'])")
"""What `shown_name` writes for characters that cannot be shown."""


def new_names(notes: Mapping[str, int], before: Mapping[str, int], known: Container[str]) -> Iterator[str]:
    """Fields that nothing reads and that were counted since `before`, less those known."""
    for note, count in notes.items():
        if note.startswith(UNKNOWN_NOTE) and count > before.get(note, 0):
            name = note.removeprefix(UNKNOWN_NOTE)
            if name not in known:
                yield name


def records_with(block: Any, name: str, count: int) -> Iterator[tuple[RawRecord, str]]:
    """The first records of a block in which a member has the name, as notes show it, and their places."""
    values = block.column(raw_records.VALUE).cast(pa.large_binary())
    has_name: Any = pc.match_substring_regex(values, _as_a_member(name)).fill_null(False)
    chosen = np.flatnonzero(has_name.to_numpy(zero_copy_only=False))
    return placed_records(block, chosen[:count])


@lru_cache(256)
def _as_a_member(shown: str) -> str:
    """A pattern of the name in JSON, where any character may be escaped: Python does so with all that are not ASCII,
    others with `/`. It takes 1 ms per MiB, no more than the search for a text."""
    unshown = _SHOWN_ESCAPE.sub(lambda match: match[0].encode().decode("unicode_escape"), shown)
    names = "|".join("".join(map(_any_form, name)) for name in sorted({shown, unshown}))
    return rf'"(?:{names})"[ \t\r\n]*:'


def _any_form(character: str) -> str:
    """A pattern of the character and of all its escapes."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    hexadecimal = "".join(rf"\\u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    short = rf"|\\{_raw(_SHORT[character])}" if character in _SHORT else ""
    plain = "" if character in '"\\' else f"{_raw(character)}|"
    return f"(?:{plain}{hexadecimal}{short})"


def _raw(character: str) -> str:
    """A pattern of its bytes, which is how patterns are applied to binary values."""
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def placed_records(block: Any, indexes: RowIndexes) -> Iterator[tuple[RawRecord, str]]:
    """Some records of a block, and their places."""
    yield from zip(raw_records.each_of(block, indexes), raw_records.wheres(block, indexes), strict=True)


def described_fields(plan: DecodePlan, block: Any, names: Iterable[str]) -> DescribedTable | None:
    """What records of the block say of these fields; None where they say nothing that a column could be made of, such
    as a field that has been NULL only, or one whose name differs from a column's in the case of its letters alone."""
    whole: DescribedTable | None = None
    taken = {column.field.name.lower() for column in plan.columns}
    for shown in names:
        if shown.lower() in taken:
            continue
        records = first_records_by_id(block) if plan.is_avro else records_with(block, shown, SAMPLE)
        described = describe_records(plan.format, records, plan.registry)
        if described is None:
            continue
        for name, text in described.columns.items():
            if shown_name(name) == shown and is_column_name(name) and name.lower() not in taken:
                one = DescribedTable({name: text}, (), described.is_typed, described.where)
                whole = one if whole is None else whole.joined(one)
    return whole


def first_records_by_id(block: Any) -> Iterator[tuple[RawRecord, str]]:
    """The first record of each writer schema, by the id in front of it."""
    heads = pc.binary_slice(block.column(raw_records.VALUE), 0, HEAD_BYTES).dictionary_encode()
    firsts = [pc.index(heads.indices, code).as_py() for code in range(len(heads.dictionary))]
    return placed_records(block, np.array(sorted(firsts), np.int64))
