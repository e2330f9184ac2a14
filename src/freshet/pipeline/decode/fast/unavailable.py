"""Unavailable values (unchanged TOAST) in columns: which rows have the placeholder, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from freshet.pipeline.decode.change import UPDATE_AFTER
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
        self._forms = placeholder_forms(plan.placeholder) if plan.placeholder else frozenset()
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
        """NULL in place of unavailable values that are kept as stored; those that `before` has take the careful path.

        Columns of which something is missing are changed, and must be converted again.
        """
        missing: dict[int, Mask] = {}
        if not self._forms:
            return missing
        updates = np.flatnonzero(changes.kinds == UPDATE_AFTER)
        if not len(updates):
            return missing
        for index, each in enumerate(self._inputs.all):
            if not each.may_be_toast:
                continue
            if self._structs.conversions[index].annotation is msgspec.Raw:
                values = columns[index]
                for row in [row for row in updates.tolist() if len(values[row]) >= self._raw_length_min]:
                    octets = bytes(values[row]).replace(b" ", b"")
                    bad[row] |= any(mark in octets for mark in self._raw_marks)
            elif self._may_have_form(columns[index], arrays[index], updates):
                mask = self._missing(changes, columns, index, bad)
                if mask.any():
                    missing[index] = mask
        return missing

    def _may_have_form(self, values: Sequence[Any], array: Any, updates: RowIndexes) -> bool:
        """True where an update may have the placeholder: nearly always its length decides; a hash costs 0.05 µs."""
        if not pa.types.is_string(array.type):
            return not self._forms.isdisjoint(values)
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
        lengths = np.minimum(np.diff(offsets)[updates], len(self._is_form_length) - 1)
        return bool(self._is_form_length[lengths].any())

    def _missing(self, changes: Changes, columns: Columns, index: int, bad: Mask) -> Mask:
        name = self._inputs.all[index].name
        attribute = self._structs.row_names[name]
        values = list(columns[index])
        mask = np.zeros(len(values), bool)
        for row in np.flatnonzero(changes.kinds == UPDATE_AFTER).tolist():
            if values[row] not in self._forms:
                continue
            before = changes.befores[row] if changes.befores is not None else None
            old = getattr(before, attribute) if before is not None else None
            if (
                name in self._needed
                or (isinstance(old, str) and is_really_there(old, self._forms))
                or (self._plan.takes_before and before is not None)
            ):
                bad[row] = True
            else:
                mask[row] = True
            values[row] = None
        columns[index] = values
        return mask
