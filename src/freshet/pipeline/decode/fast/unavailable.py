"""Unavailable values (unchanged TOAST) in columns: which rows have the placeholder, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from freshet.pipeline.decode.change import DELETE, INSERT
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.fast.changes import Changes
from freshet.pipeline.decode.fast.columns import Columns
from freshet.pipeline.decode.fast.structs import Structs
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.inputs import Inputs
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.toast import is_really_there, placeholder_forms


class UnavailableValues:
    """Finds the unavailable values among the columns of one set of structs."""

    def __init__(self, plan: DecodePlan, inputs: Inputs, structs: Structs) -> None:
        self._plan, self._inputs, self._structs = plan, inputs, structs
        self._forms = placeholder_forms(plan.placeholder)
        self._able = [index for index, each in enumerate(inputs.all) if self._forms and each.may_be_toast]
        self._characters = frozenset(map(len, self._forms))
        lengths = [len(form.encode()) for form in self._forms]
        self._is_form_length = np.zeros(max(lengths, default=0) + 2, bool)
        self._is_form_length[lengths] = True
        self._raw_marks = tuple(form.encode().strip(b"[]") for form in self._forms if not form.startswith("{"))
        self._raw_length_min = min(map(len, self._raw_marks), default=0)
        """Shorter values have none: a number nearly always is."""
        self._needed = {
            name
            for column in plan.columns
            if column.payload_fields and (column.only_field is None or column.is_key)
            for name in column.payload_fields
        }

    def take_out(self, changes: Changes, columns: Columns, arrays: Sequence[Any], bad: Mask) -> dict[int, Mask]:
        """NULL in place of unavailable values that are kept as stored; those that `before` has take the careful path,
        and so do changes that are no update.

        Columns of which something is missing are changed, and must be converted again.
        """
        missing: dict[int, Mask] = {}
        for index in self._able:
            rows = self._found(index, columns[index], arrays[index])
            if self._structs.conversions[index].annotation is msgspec.Raw:
                bad[rows] = True
            elif rows:
                mask = self._missing(changes, columns, index, rows, bad)
                missing |= {index: mask} if mask.any() else {}
        return missing

    def refuse_before(self, columns: Columns, arrays: Sequence[Any], splits: RowIndexes, bad: Mask) -> None:
        """Marks the changes whose row before has an unavailable value; the columns are those of the rows before."""
        for index in self._able:
            bad[splits[self._found(index, columns[index], arrays[index])]] = True

    def _found(self, index: int, values: Sequence[Any], array: Any) -> list[int]:
        """The rows whose value is the placeholder, or may be, where it is kept raw."""
        if pa.types.is_decimal(array.type) and not array.null_count:
            return []  # a placeholder is no number
        if self._structs.conversions[index].annotation is msgspec.Raw:
            least = self._raw_length_min
            return [row for row, value in enumerate(values) if len(value) >= least and self._has_mark(value)]
        if pa.types.is_string(array.type):  # nearly always its length decides; a hash costs 0.05 µs
            offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
            lengths = np.minimum(np.diff(offsets), len(self._is_form_length) - 1)
            rows = np.flatnonzero(self._is_form_length[lengths]).tolist()
            return [row for row in rows if values[row] in self._forms]
        characters, forms = self._characters, self._forms
        return [
            row for row, value in enumerate(values) if value is not None and len(value) in characters and value in forms
        ]

    def _has_mark(self, value: msgspec.Raw) -> bool:
        octets = bytes(value).replace(b" ", b"")
        return any(mark in octets for mark in self._raw_marks)

    def _missing(self, changes: Changes, columns: Columns, index: int, rows: Sequence[int], bad: Mask) -> Mask:
        plan, name = self._plan, self._inputs.all[index].name
        attribute = self._structs.row_names[name]
        values = list(columns[index])
        mask = np.zeros(len(values), bool)
        is_careful = name in self._needed or not plan.has_key
        for row in rows:
            values[row] = None
            kind = changes.kinds[row]
            before = changes.befores[row] if changes.befores is not None else None
            old = getattr(before, attribute) if before is not None else None
            if (
                is_careful
                or kind == DELETE
                or (kind == INSERT and plan.has_envelope)
                or (isinstance(old, str) and is_really_there(old, self._forms))
                or (plan.takes_before and before is not None)
            ):
                bad[row] = True
            else:
                mask[row] = True
        columns[index] = values
        return mask
