"""The schemas in front of payloads: `{"schema":…,"payload":` is cut off by its bytes, and read once.

A schema of forty fields is five times as long as the row behind it, and the same in every record. What is cut off is
compared byte by byte with what was read before; what is left, without the last brace, must be one JSON value, or the
record takes the careful path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.inputs import FactsKey

SCHEMAS_MAX: Final = 64
"""Records of further ones take the careful path."""


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw
    payload: msgspec.Raw


_DECODE: Final = msgspec.json.Decoder(_Wrapped).decode


def schema_prefix(value: bytes) -> bytes | None:
    """What is in front of the payload; None where it is not in the form that converters write."""
    try:
        wrapped = _DECODE(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    prefix = b'{"schema":' + bytes(wrapped.schema) + b',"payload":'
    return prefix if value.startswith(prefix) and value.endswith(b"}") else None


@dataclass(frozen=True, slots=True)
class Group:
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

    def groups(self, values: Any, indexes: RowIndexes) -> list[Group]:
        """The values (a binary array without NULLs) by the schema in front of them; those without one last."""
        found: list[Group] = []
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
