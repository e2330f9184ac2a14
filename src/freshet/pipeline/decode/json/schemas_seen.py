"""The schemas in front of payloads: `{"schema":…,"payload":` is cut off by its bytes, and read once.

A schema of forty fields is five times as long as the row behind it, and the same in every record. What is cut off is
compared byte by byte with what was read before; what is left, without the last brace, must be one JSON value, or the
record takes the careful path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.inputs import FactsKey
from freshet.pipeline.decode.record_block import RecordBlock

SCHEMAS_MAX: Final = 64
"""Records of further ones take the careful path."""


class _Schemaful(msgspec.Struct):
    schema: msgspec.Raw
    payload: msgspec.Raw


class _WithSchema(msgspec.Struct, rename={"types": "schema"}):
    types: msgspec.Raw = msgspec.Raw(b"")


class _WithMysqlType(msgspec.Struct, rename={"types": "mysqlType"}):
    types: msgspec.Raw = msgspec.Raw(b"")


_WRAPPING: Final = ("debezium-json", "debezium-unwrapped")
"""Formats whose records have a payload beside their schema."""
_TYPES: Final[Mapping[Format, Callable[[bytes], _WithSchema | _WithMysqlType]]] = {
    "debezium-json": msgspec.json.Decoder(_WithSchema).decode,
    "debezium-unwrapped": msgspec.json.Decoder(_WithSchema).decode,
    "canal-json": msgspec.json.Decoder(_WithMysqlType).decode,
}
_DECODE: Final = msgspec.json.Decoder(_Schemaful).decode


def schema_prefix(value: bytes) -> bytes | None:
    """What is in front of the payload; None where it is not in the form that converters write."""
    try:
        wrapped = _DECODE(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    prefix = b'{"schema":' + bytes(wrapped.schema) + b',"payload":'
    return prefix if value.startswith(prefix) and value.endswith(b"}") else None


def schema_texts(format_name: Format, values: pa.Array, indexes: RowIndexes) -> Iterator[tuple[int, bytes]]:
    """What stands under the name of the types in each of these values (a binary array), where it is there: the index of
    the first value of each text. The texts of two schemas differ, and those of one may."""
    decode = _TYPES.get(format_name)
    if decode is None or not len(indexes):
        return
    if format_name in _WRAPPING:  # without a schema there is no payload either
        there = pc.match_substring(values.take(pa.array(indexes)), b'"payload"')
        indexes = indexes[there.fill_null(False).to_numpy(zero_copy_only=False)]
    seen: set[bytes] = set()
    for index, value in zip(indexes.tolist(), values.take(pa.array(indexes)).to_pylist(), strict=True):
        try:
            text = bytes(decode(value).types)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
            continue
        if text and text not in seen:
            seen.add(text)
            yield index, text


class Group(Frozen):
    """Records of one block that are read alike: their facts, indexes, and what is left of their values."""

    facts: FactsKey
    indexes: RowIndexes
    values: list[bytes]


@dataclass(slots=True)
class SchemasSeen:
    """The prefixes that one decoder knows."""

    facts: dict[bytes, FactsKey] = field(default_factory=dict)

    def learn(self, prefix: bytes, facts: FactsKey) -> bool:
        """Adds a prefix; false when it is known, or one too many."""
        if prefix in self.facts or len(self.facts) >= SCHEMAS_MAX:
            return False
        self.facts[prefix] = facts
        return True

    def groups(self, block: RecordBlock, indexes: RowIndexes) -> list[Group]:
        """The records at these indexes, whose values are not NULL, by the schema in front; those without one last."""
        if not self.facts:
            return [Group(None, indexes, block.values(indexes))] if len(indexes) else []
        found: list[Group] = []
        values = block.taken(raw_records.VALUE, indexes)
        for prefix, facts in self.facts.items():
            if not len(indexes):
                break
            mask = pc.and_(pc.starts_with(values, pattern=prefix), pc.ends_with(values, pattern=b"}"))
            chosen = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if not len(chosen):
                continue
            all_of_them = len(chosen) == len(indexes)
            part = values if all_of_them else values.take(chosen)
            found.append(Group(facts, indexes[chosen], pc.binary_slice(part, len(prefix), -1).to_pylist()))
            rest = np.delete(np.arange(len(indexes)), chosen)
            indexes, values = indexes[rest], values.take(rest)
        if len(indexes):
            found.append(Group(None, indexes, values.to_pylist()))
        return found
