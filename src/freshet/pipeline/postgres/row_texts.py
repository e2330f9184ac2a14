"""One row of a message at a time, as Python's values: for what is looked at with care."""

from __future__ import annotations

from enum import Enum
from typing import Final

import pyarrow as pa

from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.postgres.array_texts import element_texts
from freshet.pipeline.postgres.change_records import NOWHERE, ChangeRecords
from freshet.pipeline.postgres.source_types import Form, SourceType
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.wire import NULL, TEXT, UNCHANGED, Messages


class _Unchanged(Enum):
    UNCHANGED = "unchanged"


NOT_SENT: Final = _Unchanged.UNCHANGED
"""In place of a value that did not change and was not sent."""

RowTexts = dict[int, bytes | _Unchanged | None]
"""The values of a row by the places of their columns; what is not there is not known."""


def row_of(messages: Messages, records: ChangeRecords, index: int, form: TableForm) -> RowTexts | None:
    """The row that a record brings; with the values of the row before it where they did not change."""
    at = int(records.news[index])
    if at == NOWHERE:
        return None
    row = row_at(messages.data, at)
    if NOT_SENT in row.values() and int(records.olds[index]) != NOWHERE and not records.has_key_only[index]:
        old = row_at(messages.data, int(records.olds[index]))
        row = {place: old[place] if value is NOT_SENT else value for place, value in row.items()}
    return row


def row_before(messages: Messages, records: ChangeRecords, index: int, form: TableForm) -> RowTexts | None:
    """The row before a change, or its key alone."""
    at = int(records.olds[index])
    if at == NOWHERE:
        return None
    row = row_at(messages.data, at)
    if records.has_key_only[index]:
        kept = {place for place, column in enumerate(form.relation.columns) if column.is_identity}
        row = {place: value for place, value in row.items() if place in kept}
    return row


def shown_value(of: SourceType, value: object, placeholder: str) -> JsonValue:
    """A value as JSON."""
    if value is None:
        return None
    if value is NOT_SENT:
        return [placeholder] if of.is_array else placeholder
    assert isinstance(value, bytes)
    text = value.decode(errors="replace")
    if not of.is_array:
        return _shown(of.of.form, text)
    found = element_texts(pa.array([text]), of.delimiter)
    if found.bad is not None and found.bad[0]:
        return text
    return [None if each is None else _shown(of.of.form, each) for each in found.texts.to_pylist()]


def _shown(form: Form, text: str) -> JsonValue:
    match form:
        case Form.WHOLE:
            return int(text)
        case Form.FLOAT if text[-1:].isdigit():
            return float(text)
        case Form.BOOLEAN:
            return text == "t"
        case Form.BYTES:
            return text.removeprefix("\\x")
        case Form.MONEY:
            return text.replace("$", "").replace(",", "")
        case Form.STAMP | Form.ZONED if text[:1].isdigit():
            return text.replace(" ", "T", 1).replace("+00", "Z")
        case _:
            return text


def row_at(data: bytes, at: int) -> RowTexts:
    """The row at a position of messages, as it was sent."""
    count = int.from_bytes(data[at : at + 2], "big")
    at += 2
    row: RowTexts = {}
    for place in range(count):
        kind = data[at]
        at += 1
        if kind == TEXT:
            length = int.from_bytes(data[at : at + 4], "big")
            row[place] = data[at + 4 : at + 4 + length]
            at += 4 + length
        else:
            row[place] = NOT_SENT if kind == UNCHANGED else None
            assert kind in (UNCHANGED, NULL), chr(kind)
    return row
