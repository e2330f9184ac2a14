"""Which rows of kind -U and -D a table takes at all; the others are refused before anything of their input is taken.

| merge engine | refused |
|---|---|
| deduplicate | none |
| first-row | all |
| partial-update without sequence groups | all, unless -D removes the record (then -U is passed over) |
| partial-update with sequence groups | those that reach a function which takes none: an ordering column is not NULL |
| aggregation | those that reach a function which takes none: all but -D where it removes the record |

With `ignore-delete` no retract gets here. Apache Paimon takes such a row and fails when it is merged with another one,
at a flush, a compaction or in a read: then it is in the table, and so it is refused here. Where only merging can decide
what a row does (a -D that removes the record if it is in order), it passes.

Source: MERGING.md §2.3 to §2.6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.aggregate.events import retract_error_text, takes_retracts
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.merged_table import key_text
from freshet.storage.merge.partial_update import NO_RULE
from freshet.storage.model.row_kind import KIND_TEXTS, RowKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.engine import EngineOptions, SequenceGroup, engine_options


@dataclass(frozen=True, slots=True)
class RetractRules:
    """The rules of one table."""

    engine: MergeEngine
    options: EngineOptions
    key_columns: tuple[str, ...]
    table: str

    @classmethod
    def of(cls, schema: TableSchema, options: CoreOptions, table: str) -> RetractRules:
        """The rules that a primary-key table's options ask for."""
        return cls(options.merge_engine, engine_options(schema, options), schema.primary_keys, table)

    def check(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> None:
        """Raises `InvalidRequestError` for the first row that cannot be merged, naming its key."""
        is_retract = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
        if not is_retract.any():
            return
        is_delete = kinds == RowKind.DELETE
        if self.engine is MergeEngine.FIRST_ROW:
            self._refuse(rows, kinds, is_retract, "a first-row table takes none; set ignore-delete to leave them out")
        elif self.engine is MergeEngine.PARTIAL_UPDATE and self.options.groups:
            self._check_groups(rows, kinds, is_retract)
        elif self.engine is MergeEngine.PARTIAL_UPDATE and not self.options.remove_record_on_delete:
            self._refuse(rows, kinds, is_retract, NO_RULE)
        elif self.engine is MergeEngine.AGGREGATE:
            reaches = is_retract & ~is_delete if self.options.remove_record_on_delete else is_retract
            self._refuse_columns(rows, kinds, reaches, tuple(self.options.functions))

    def _check_groups(self, rows: pa.Table, kinds: npt.NDArray[np.int8], is_retract: Flags) -> None:
        removing = [group for group in self.options.groups if group.removes_record]
        for group in self.options.groups:
            if all(takes_retracts(self.options.functions[name]) for name in self._functions_of(group)):
                continue
            reaches = is_retract & _has_value(rows, group)
            for other in removing:
                reaches &= (kinds != RowKind.DELETE) | ~_has_value(rows, other)
            self._refuse_columns(rows, kinds, reaches, self._functions_of(group))

    def _functions_of(self, group: SequenceGroup) -> tuple[str, ...]:
        return tuple(name for name in group.protected if name in self.options.functions)

    def _refuse_columns(
        self, rows: pa.Table, kinds: npt.NDArray[np.int8], reaches: Flags, columns: tuple[str, ...]
    ) -> None:
        for name in columns:
            function = self.options.functions[name]
            if not takes_retracts(function):
                self._refuse(rows, kinds, reaches, f"column {name!r}: {retract_error_text(function, name)}")

    def _refuse(self, rows: pa.Table, kinds: npt.NDArray[np.int8], offends: Flags, reason: str) -> None:
        if offends.any():
            row = int(np.flatnonzero(offends)[0])
            raise InvalidRequestError(
                f"{self.table} cannot take row {row} of the input, {KIND_TEXTS[kinds[row]]} with key "
                f"{key_text(rows, row, self.key_columns)}: {reason}"
            )


def _has_value(rows: pa.Table, group: SequenceGroup) -> Flags:
    """True where an ordering column of the group is not NULL."""
    result = np.zeros(rows.num_rows, np.bool_)
    for name in group.ordering:
        result |= rows.column(name).is_valid().to_numpy()
    return result
