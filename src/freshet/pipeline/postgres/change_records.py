"""The changes that messages of `pgoutput` are, as arrays: one record for each, two where the key of a row has changed.

| message | records |
|---|---|
| I, D | one |
| U | an update; where the key is another one a deletion of the old key, then an insert |
| T | one for each table |

Of REPLICA IDENTITY FULL the old row comes with each update, and says whether the key is another one; else the old key
comes where it is, or where it has a value that lies apart (TOAST): the new row does not bring it then, and is given it
from there. An update counts as two in the numbers of records, a truncate as its tables, so that numbers can be
told from the kinds of messages alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.wire import (
    BEGIN,
    DELETE,
    EPOCH_US,
    INSERT,
    KEY,
    NEW,
    TEXT,
    TRUNCATE,
    UNCHANGED,
    UPDATE,
    Kinds,
    Messages,
    Positions,
    Tuples,
    distinct,
    numbers,
    texts_at,
    truncated_oids,
    tuples_at,
)

Mask = npt.NDArray[np.bool_]

INDEX: Final = "i"
"""The replica identity by another index than that of the primary key."""
NOWHERE: Final = -1
"""In place of the position of a row that a record does not have."""
_WEIGHTS: Final = np.zeros(256, np.int64)
_WEIGHTS[[INSERT, DELETE]] = 1
_WEIGHTS[UPDATE] = 2


class BegunTransaction(Frozen):
    """What the `B` of a transaction says."""

    commit_lsn: int
    commit_us: int
    """Microseconds since 1970."""
    xid: int


def source_of(form: TableForm, transaction: BegunTransaction) -> dict[str, JsonValue]:
    """What an envelope says of where a change is from."""
    return {
        "connector": "postgresql",
        "db": form.database,
        "schema": form.relation.schema,
        "table": form.relation.name,
        "ts_ms": transaction.commit_us // 1000,
        "ts_us": transaction.commit_us,
        "txId": transaction.xid,
        "lsn": transaction.commit_lsn,
    }


def weights_of(messages: Messages) -> Positions:
    """How many numbers of records each message takes."""
    kinds = messages.kinds
    found: Positions = _WEIGHTS[kinds]
    for index in np.flatnonzero(kinds == TRUNCATE).tolist():
        start = int(messages.starts[index])
        found[index] = int.from_bytes(messages.data[start + 1 : start + 5], "big")
    return found


def transactions_of(messages: Messages) -> list[BegunTransaction]:
    """The transactions that begin here."""
    octets, kinds = messages.octets, messages.kinds
    at = messages.starts[kinds == BEGIN]
    columns = (numbers(octets, at + 1, 8), numbers(octets, at + 9, 8) + EPOCH_US, numbers(octets, at + 17, 4))
    return [BegunTransaction(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]


def keys_have_moved(messages: Messages) -> bool:
    """Whether keys change; of a table that sends whole rows (FULL) there is nothing to look for."""
    updates = messages.starts[messages.kinds == ord("U")]
    return bool((messages.octets[updates + 5] == ord("K")).any())


class ChangeRecords(Frozen):
    """Records in the order of arrival; the arrays are of one length."""

    forms: Positions
    """Of the table of each, its number among the forms of the stream."""
    kinds: Kinds
    """`I`, `U`, `D` or `T`."""
    news: Positions
    olds: Positions
    """Positions of the rows; `NOWHERE` where there is none."""
    has_key_only: Mask
    """Whether the old row is the key alone."""
    is_moved: Mask
    """Whether an insert stands for a row whose key has changed."""
    numbers: Positions
    transactions: Positions
    """Of each, its number among the transactions of the stream."""

    def __len__(self) -> int:
        return len(self.kinds)

    def taken(self, rows: Any) -> Self:
        """Some of them."""
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All of them, by their numbers."""
        columns = [np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)]
        found = cls(*columns)
        if (found.numbers[1:] >= found.numbers[:-1]).all():
            return found
        return found.taken(np.argsort(found.numbers, kind="stable"))


def refuse_other_identity(records: ChangeRecords, forms: Sequence[TableForm]) -> None:
    """Raises where updates or deletions come with the columns of another index than the key's: deletions do not say
    which row goes, and updates not that a key is another one."""
    for number in distinct(records.forms):
        if forms[number].relation.identity == INDEX and (records.kinds[records.forms == number] != INSERT).any():
            raise StoppedByRecordError(
                f"table {forms[number].relation} had REPLICA IDENTITY USING INDEX when rows were changed: deletions "
                "came without the primary key, and updates of it without the one before. Give it REPLICA IDENTITY "
                "DEFAULT, or FULL, and copy it again: freshet resync FILE --table TABLE"
            )


def records_of(
    messages: Messages,
    forms: Sequence[TableForm],
    versions: Mapping[int, tuple[Positions, Positions]],
    first_number: int,
    *,
    begins_inside: bool,
) -> tuple[Messages, ChangeRecords]:
    """The records of messages, and what they are positions in: the messages, and rows with the whole key behind them.
    `versions` are the forms of each table by its oid: numbers of the messages from which they hold, and their own
    numbers. With `begins_inside` a transaction is open at the first message."""
    octets, kinds = messages.octets, messages.kinds
    weights = weights_of(messages)
    before = np.cumsum(weights) - weights + first_number
    of_transaction = np.cumsum(kinds == BEGIN) - (0 if begins_inside else 1)
    chosen = np.flatnonzero((weights > 0) & (kinds != TRUNCATE))
    oids = numbers(octets, messages.starts[chosen] + 1, 4)
    parts, keyed = [_nothing()], _RowsBehind(len(messages.data), [])
    for oid in distinct(oids):
        if oid not in versions:
            continue
        own = chosen[oids == oid]
        since, which = versions[oid]
        of_form = which[np.searchsorted(since, own, side="right") - 1]
        for form in distinct(of_form):
            rows = own[of_form == form]
            if forms[form].is_taken:
                numbered = before[rows], of_transaction[rows]
                parts += _of_form(messages, messages.starts[rows], kinds[rows], form, forms[form], *numbered, keyed)
    for index in np.flatnonzero(kinds == TRUNCATE).tolist():
        start = int(messages.starts[index])
        for place, oid in enumerate(truncated_oids(messages.data[start : start + int(6 + 4 * weights[index])])):
            since, which = versions.get(oid, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
            held = int(np.searchsorted(since, index, side="right")) - 1
            if held >= 0 and forms[int(which[held])].is_taken:
                parts.append(_truncate(int(which[held]), int(before[index]) + place, int(of_transaction[index])))
    if keyed.rows:
        messages = Messages(b"".join([messages.data, *keyed.rows]), messages.starts)
    return messages, ChangeRecords.joined(parts)


@dataclass
class _RowsBehind:
    """Rows that are put behind the data of messages, which ends at `end` with them."""

    end: int
    rows: list[bytes]

    def added(self, row: bytes) -> int:
        """The position that it gets."""
        self.rows.append(row)
        self.end += len(row)
        return self.end - len(row)


def _of_form(
    messages: Messages,
    at: Positions,
    kinds: Kinds,
    number: int,
    form: TableForm,
    numbers_: Positions,
    of: Positions,
    keyed: _RowsBehind,
) -> list[ChangeRecords]:
    """The records of changes of one table in one form."""
    octets, count = messages.octets, len(form.relation.columns)
    marks = octets[at + 5]
    news, olds = np.where(marks == NEW, at + 6, NOWHERE), np.where(marks == NEW, NOWHERE, at + 6)
    has_old = np.flatnonzero(marks != NEW)
    updated = has_old[kinds[has_old] == UPDATE]
    is_other = np.zeros(len(at), bool)
    if len(updated):
        old = tuples_at(octets, at[updated] + 6, count)
        news[updated] = old.ends + 1
        new = tuples_at(octets, old.ends + 1, count)
        is_other[updated] = _has_other_key(messages.data, old, new, form)
        lacks = np.logical_or.reduce([new.kinds[index] == UNCHANGED for index in form.key_indexes])
        for row in np.flatnonzero(lacks).tolist():
            news[updated[row]] = keyed.added(_with_key(messages.data, old, new, row, form))
    whole = ChangeRecords(
        np.full(len(at), number),
        kinds,
        news,
        olds,
        marks == KEY,
        np.zeros(len(at), bool),
        numbers_,
        of,
    )
    if not is_other.any():
        return [whole]
    moved = whole.taken(is_other)
    size = len(moved)
    nowhere = np.full(size, NOWHERE)
    deletes = _with(moved, kinds=np.full(size, DELETE, np.uint8), news=nowhere)
    inserts = _with(
        moved,
        kinds=np.full(size, INSERT, np.uint8),
        is_moved=np.ones(size, bool),
        numbers=moved.numbers + 1,
    )
    return [whole.taken(~is_other), deletes, inserts]


def _has_other_key(data: bytes, old: Tuples, new: Tuples, form: TableForm) -> Mask:
    """The rows whose key is another one; a value that was not sent has not changed."""
    found = np.zeros(len(old.ends), bool)
    for index in form.key_indexes:
        is_sent = (new.kinds[index] != UNCHANGED) & (old.kinds[index] == TEXT)
        old_texts, new_texts = (
            texts_at(data, each.begins[index], each.lengths[index], ~is_sent) for each in (old, new)
        )
        differs = pc.not_equal(old_texts, new_texts).fill_null(False).to_numpy(zero_copy_only=False)
        found |= differs
    return found


def _with_key(data: bytes, old: Tuples, new: Tuples, row: int, form: TableForm) -> bytes:
    """A new row, with the values of its key that were not sent as the row before has them."""
    parts = [len(new.kinds).to_bytes(2, "big")]
    for index, kinds in enumerate(new.kinds):
        of = old if index in form.key_indexes and kinds[row] == UNCHANGED else new
        begin, head = int(of.begins[index][row]), 5 if of.kinds[index][row] == TEXT else 1
        parts.append(data[begin - head : begin + int(of.lengths[index][row])])
    return b"".join(parts)


def _with(records: ChangeRecords, **values: Any) -> ChangeRecords:
    return ChangeRecords(*(values.get(each.name, getattr(records, each.name)) for each in fields(records)))


def _nothing() -> ChangeRecords:
    whole, flags = np.zeros(0, np.int64), np.zeros(0, bool)
    return ChangeRecords(whole, np.zeros(0, np.uint8), whole, whole, flags, flags, whole, whole)


def _truncate(form: int, number: int, transaction: int) -> ChangeRecords:
    nowhere, flag = np.array([NOWHERE]), np.zeros(1, bool)
    return ChangeRecords(
        np.array([form]), np.array([TRUNCATE], np.uint8), nowhere, nowhere, flag, flag, np.array([number]),
        np.array([transaction]),
    )  # fmt: skip
