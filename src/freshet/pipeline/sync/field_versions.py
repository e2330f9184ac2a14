"""Records of a table with renamed columns, parted by the version of the names that their schema has (`renames`).

| records | version |
|---|---|
| JSON with the schema in front, as converters write it | by the bytes of the schema |
| JSON with a schema in another form | read one by one |
| Avro | by the id of the writer schema |
| without a schema | the newest |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.avro.wire import HEAD_BYTES
from freshet.pipeline.decode.change import RawRecord
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.fast.schemas_seen import SCHEMAS_MAX, schema_prefix
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.sync.renames import Renames

WRAPPED: Final = b'{"schema":{'
_ODDLY_WRAPPED: Final = r'^\s*\{\s*"(schema|payload)"'

Known = dict[bytes, int]
"""Versions by what stands in front of a value."""


class VersionSorter:
    """Parts the records of one table; `describe` says what one of them says of it."""

    def __init__(self, renames: Renames, known: Known, describe: Callable[[RawRecord, str], DescribedTable]) -> None:
        self._renames = renames
        self._known = known
        self._describe = describe

    def parts(self, block: Any, *, is_avro: bool) -> Iterator[tuple[int, Any]]:
        """The records by their version, each part in the order of the block."""
        found: dict[int, list[RowIndexes]] = {}
        for version, indexes in self._by_id(block) if is_avro else self._by_prefix(block):
            found.setdefault(version, []).append(indexes)
        if len(found) == 1:
            yield next(iter(found)), block
            return
        for version, parts in found.items():
            yield version, block.take(np.sort(np.concatenate(parts)))

    def _by_id(self, block: Any) -> Iterator[tuple[int, RowIndexes]]:
        heads = pc.binary_slice(block.column(raw_records.VALUE), 0, HEAD_BYTES).dictionary_encode()
        codes = heads.indices.to_numpy(zero_copy_only=False)
        for code, head in enumerate(heads.dictionary.to_pylist()):
            indexes = np.flatnonzero(codes == code)
            if head not in self._known:
                self._known[head] = self._version(block, indexes[0])
            yield self._known[head], indexes

    def _by_prefix(self, block: Any) -> Iterator[tuple[int, RowIndexes]]:
        values, left = block.column(raw_records.VALUE), np.arange(block.num_rows)
        odd: Any = pc.match_substring_regex(values, _ODDLY_WRAPPED)
        plain = ~odd.fill_null(False).to_numpy(zero_copy_only=False)
        if plain.any():
            yield self._renames.newest, left[plain]
            left, values = left[~plain], values.take(pa.array(np.flatnonzero(~plain)))
        while len(left):
            first: bytes = values[0].as_py()
            prefix = next((each for each in self._known if first.startswith(each)), None)
            if prefix is None and first.startswith(WRAPPED) and len(self._known) < SCHEMAS_MAX:
                prefix = schema_prefix(first)
            if prefix is None:
                yield self._version(block, left[0]), left[:1]
                left, values = left[1:], values.slice(1)
                continue
            if prefix not in self._known:
                self._known[prefix] = self._version(block, left[0])
            chosen = pc.starts_with(values, pattern=prefix).to_numpy(zero_copy_only=False)
            yield self._known[prefix], left[chosen]
            left, values = left[~chosen], values.take(pa.array(np.flatnonzero(~chosen)))

    def _version(self, block: Any, index: Any) -> int:
        (record,) = raw_records.each_of(block, np.array([index]))
        described = self._describe(record, raw_records.where(block, int(index)))
        return self._renames.version_of(tuple(described.columns)) if described.is_typed else self._renames.newest
