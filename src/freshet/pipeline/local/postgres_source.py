"""A PostgreSQL database as a source of the local engine: batch N ends where a transaction of its stream does.

    {"slot": "freshet_shop", "systemid": "7386…", "timeline": 1, "lsn": "0/1566388", "changes": 1234}

is its offset: the end of the last transaction, and how many numbers records had until there; with `copy`, how far the
copy of the tables is (`postgres_copy`). Whatever died, the stream begins at the offset of the last batch that is done,
and a batch that was planned is received again up to its end.

| file of the checkpoint | what it says |
|---|---|
| `postgres-<i>-slot` | the slot that is about to be created: one of its name that is there then is ours |
| `sources/<i>/0` | where the slot began |
| `postgres-<i>-copied` | the tables that were copied, or are, by schema, name and oid |
| `postgres-<i>-ended` | with `snapshot: only`: all is copied, and the slot is not there any more |
| `postgres-<i>-quiet` | how far the slot may be ahead of the last batch: there was nothing for it in between |

What is confirmed to the server is in the lake: `done`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from freshet.pipeline.config.model import PostgresConfig, SourceConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.local.postgres_copy import HeldBatch, TableCopy
from freshet.pipeline.local.postgres_offset import PostgresOffset, known_quiet, quiet_name
from freshet.pipeline.local.postgres_piece import ChangesOfStream
from freshet.pipeline.local.postgres_tables import CopiedTables
from freshet.pipeline.local.source import Piece
from freshet.pipeline.postgres.change_records import BegunTransaction, keys_have_moved, transactions_of, weights_of
from freshet.pipeline.postgres.copy_rule import CopyRule
from freshet.pipeline.postgres.lsn import lsn_text
from freshet.pipeline.postgres.publications import LakeTargets
from freshet.pipeline.postgres.received import MessageSpan, end_held
from freshet.pipeline.postgres.receiver import Receiver
from freshet.pipeline.postgres.replication import ReplicationStream
from freshet.pipeline.postgres.sent_changes import StreamedChanges
from freshet.pipeline.postgres.server import ServerPlace, psycopg
from freshet.pipeline.postgres.slots import (
    create_slot,
    drop_slot,
    identify,
    refuse_active,
    refuse_identity,
    refuse_slot,
    slot_named,
)
from freshet.pipeline.postgres.spilled_messages import runs_of
from freshet.pipeline.postgres.table_form import SourceCatalog, TableForm
from freshet.pipeline.postgres.wire import BEGIN, COMMIT, Positions, Relation, relations_in
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.wire.kept_value import KeptValue

BATCH_BYTES: Final = 48 << 20
"""What a batch has at most, but for a transaction that is larger."""
PIECE_MESSAGES: Final = 10_000
"""Fewer are not worth another worker."""
QUIET_BYTES: Final = 1 << 20
ASKED_S: Final = 0.05
DROP_S: Final = 10.0
LOOK_S: Final = 30.0
"""How often a publication is looked at while its changes come."""
RECEIVE_S: Final = 600.0
"""How long a batch that was planned is waited for."""
_LOG: Final = logging.getLogger(__name__)


def _holds_nothing(table: SourceTable) -> int | None:
    """None: the lead of the query is its only table, and a batch that it holds is not read again."""
    return None


def postgres_source(
    config: SourceConfig,
    folder: WritableCheckpoint,
    index: int,
    held: HeldBatch = _holds_nothing,
    lake_key: Collection[str] = (),
    targets: LakeTargets = LakeTargets(),  # noqa: B008 - it is frozen
) -> PostgresSource:
    """The source of a pipeline file; `lake_key`: see `postgres_offset`."""
    assert config.postgres is not None, "the source is a database"
    return PostgresSource(config.postgres, config.unavailable_value_placeholder, folder, index, held, lake_key, targets)


class PostgresSource:
    """A `Source`; used by the thread of its query alone."""

    def __init__(
        self,
        config: PostgresConfig,
        placeholder: str,
        folder: WritableCheckpoint,
        index: int,
        held: HeldBatch,
        lake_key: Collection[str],
        targets: LakeTargets,
    ) -> None:
        self._config, self._placeholder = config, placeholder
        self._folder, self._index = folder, index
        self._place = ServerPlace.of(config)
        self._receiver: Receiver | None = None
        self._catalog = SourceCatalog(self._place, config)
        self._tables = CopiedTables(self._place, config, folder, index, lake_key, targets)
        self._copy = TableCopy(self._place, self._catalog, self._tables, folder, index, held)
        self._relations: dict[int, Relation] = {}
        """As they were at the start of what is held."""
        self._first: str | None = None
        self._timeline = 0
        self._bound: int | None = None
        self._is_bound = False
        self._looked_s = 0.0
        self._is_dropped = False

    def first(self) -> str:
        """`Source.first`: the slot is created, unless it is there."""
        if self._first is None:
            self._first = self._folder.read("sources", str(self._index), "0") or self._begin()
        return self._first

    def latest(self, start: str | None) -> str | None:
        """`Source.latest`."""
        if self._tables.is_ended:
            self._drop_slot()
            return start
        begun = self._copy.corrected(start or self.first())
        receiver = self._receiving(begun)
        self._look_again()
        if self._is_bound and (begun.copy is None or begun.copy.is_whole):
            self._await_bound(receiver, begun)
        self._confirm_quiet(receiver)
        with receiver.held() as received:
            found = received.end_within(BATCH_BYTES)
            span = None if found is None else received.up_to(found.lsn)
        copy = self._tables.with_new(begun.copy, () if span is None else span.relations)
        if copy is not None and not copy.is_whole:
            copy, snapshot = self._copy.plan(copy)
            found = None if span is None else end_held(span, snapshot)
        elif self._config.snapshot == "only" and self._is_copied(receiver, begun):
            self._tables.end()
            self._drop_slot()
            return start
        elif found is None or (self._bound is not None and begun.lsn >= self._bound):
            return start
        elif copy is not None and copy.until is not None and found.lsn >= copy.until:
            copy = None
        timeline = self._timeline or begun.timeline  # another one since a standby was promoted
        ends = replace(begun, timeline=timeline, copy=copy)
        return (ends if found is None else replace(ends, lsn=found.lsn, changes=begun.changes + found.weight)).text

    def bound(self) -> None:
        """`Source.bound`."""
        self._is_bound = True

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[Piece]:
        """`PieceSource.pieces`: parts of the messages between two positions, in their order."""
        begun, ends = self._copy.corrected(start or self.first()), PostgresOffset.of(end)
        limit = self._config.copy_mib_per_second
        rate = None if limit is None else limit * 2**20 / max(1, count // 2)  # each worker gets two of `count`
        chunks = list(self._copy.pieces(begun, ends, end, self._config.slot, work, index, rate))
        if ends.copy is not None and (ends.copy.is_begun_anew or (ends.lsn == begun.lsn and not chunks)):
            raise PipelineFailedError(
                "a resync was begun and has not ended: run freshet resync FILE again", kind=ErrorKind.INVALID_REQUEST
            )
        if ends.lsn == begun.lsn:
            return chunks
        rule = self._copy.rule(begun, ends)
        return [*chunks, *self._pieces(self._span(begun, ends), begun, rule, work, index, count)]

    def looks(self, start: str | None, end: str, work: KeptValue[BatchWork], index: int) -> Sequence[Piece]:
        """`NewsSource.looks`: of tables that are copied."""
        begun, ends = self._copy.corrected(start or self.first()), PostgresOffset.of(end)
        return self._copy.looks(begun, ends, end, self._config.slot, work, index)

    def done(self, end: str) -> None:
        """`Source.done`: the lake has it, so the server need not keep it."""
        offset = PostgresOffset.of(end)
        self._copy.done()
        self._tables.done(offset.copy)
        receiver = self._receiver
        if receiver is None:
            return  # the stream begins there
        with receiver.held() as received:
            dropped = received.drop(offset.lsn)
        self._relations |= {relation.oid: relation for relation in dropped}
        receiver.confirm(offset.lsn)

    def lag(self, end: str) -> int | None:
        """`Source.lag`."""
        return None

    def wait(self, start: str | None, timeout_s: float) -> bool:
        """`Source.wait`."""
        begun = PostgresOffset.of(start or self.first())
        if begun.copy is not None and not begun.copy.is_whole:
            return True
        if self._tables.is_ended:
            time.sleep(timeout_s)
            return False
        receiver = self._receiving(begun)
        has_come = receiver.wait(timeout_s, lambda received: received.has_whole)
        if not has_come:
            self._confirm_quiet(receiver)
        return has_come

    def close(self) -> None:
        """`Source.close`."""
        self._copy.close()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    # --- the stream ---------------------------------------------------------------------------------------------------

    def _begin(self) -> str:
        """Creates the slot, and writes down where it begins."""
        name, mark = self._config.slot, f"postgres-{self._index}-slot"
        with self._place.session() as session:
            self._look_at_publication(session)
            slot = slot_named(session, name)
        with self._place.session(replication=True) as connection:
            identity = identify(connection)
        if slot is not None and self._folder.read(mark) != name:
            raise PipelineFailedError(
                f"slot {name} is there already, and this checkpoint has not made it: another pipeline reads it, or "
                "did. Give the source another slot, or drop it where nobody needs it (freshet drop-slot FILE)",
                kind=ErrorKind.INVALID_REQUEST,
            )
        if slot is None:
            self._folder.replace(mark, name)
            lsn = create_slot(self._place, name, is_failover=self._config.failover)
            _LOG.info("created slot %s of %s at %s", name, self._place.shown, lsn_text(lsn))
        else:
            assert slot.confirmed is not None
            lsn = slot.confirmed
        text = PostgresOffset(name, identity.systemid, identity.timeline, lsn, 0, self._tables.begin()).text
        self._folder.create("sources", str(self._index), "0", text=text)
        return self._folder.read("sources", str(self._index), "0") or text

    def _receiving(self, begun: PostgresOffset) -> Receiver:
        """What receives, from the first position that anybody asks for."""
        if self._receiver is None:
            open_at = partial(self._open_at, begun)
            self._receiver = Receiver(open_at, begun.lsn, f"slot {self._config.slot}")
        return self._receiver

    def _open_at(self, begun: PostgresOffset, lsn: int) -> ReplicationStream:
        """A stream at a position, where the slot has everything from there on."""
        with self._place.session() as session:
            self._look_at_publication(session)
            slot = slot_named(session, self._config.slot)
        stream = ReplicationStream(self._place, self._config.slot)
        try:
            refuse_identity(stream.identity, begun.systemid, self._timeline or begun.timeline, self._place, lsn)
            self._timeline = stream.identity.timeline
            refuse_slot(slot, self._config.slot, stream.identity, lsn, known_quiet(self._folder, self._index))
            refuse_active(slot)
            stream.start(self._config.publication, lsn)
        except Exception:
            stream.close()
            raise
        return stream

    def _look_at_publication(self, session: psycopg.Connection[Any]) -> None:
        self._tables.look(session)
        self._looked_s = time.monotonic()

    def _look_again(self) -> None:
        """The same while it runs: the stream says nothing of a publication that is altered."""
        if time.monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = time.monotonic()
        try:
            with self._place.session() as session:
                self._look_at_publication(session)
        except PipelineFailedError as error:
            if error.kind is not ErrorKind.RETRYABLE:  # else the stream says so itself
                raise

    def _confirm_quiet(self, receiver: Receiver) -> None:
        """Lets the server go on where it has had nothing for this stream: first it is written down that this is why the
        slot is ahead of the lake."""
        quiet = receiver.quiet()
        if quiet is None:
            return
        if quiet.is_asked or quiet.lsn - max(known_quiet(self._folder, self._index), receiver.confirmed) >= QUIET_BYTES:
            self._folder.replace(quiet_name(self._index), lsn_text(quiet.lsn))
            receiver.confirm_quiet(quiet)

    def _is_copied(self, receiver: Receiver, begun: PostgresOffset) -> bool:
        """Whether the lake is where the last chunk was read, of a copy that is whole."""
        until = None if begun.copy is None else begun.copy.until
        if until is None or begun.lsn >= until:
            return True
        receiver.ask()
        with receiver.held() as received:
            return received.is_empty and (receiver.seen >= until or receiver.is_at_end)

    def _drop_slot(self) -> None:
        """The slot of a copy alone, which nobody needs any more; once its process at the server has ended."""
        if self._receiver is not None:
            self.close()
        until = time.monotonic() + DROP_S
        while not self._is_dropped:
            try:
                drop_slot(self._place, self._config.slot)
                self._is_dropped = True
            except PipelineFailedError as error:
                if error.kind is not ErrorKind.RETRYABLE or time.monotonic() > until:
                    raise
                time.sleep(ASKED_S)

    def _await_bound(self, receiver: Receiver, begun: PostgresOffset) -> None:
        """Waits until everything is here that was committed when the run began."""
        if self._bound is None:
            with self._place.session(replication=True) as connection:
                self._bound = identify(connection).lsn
        bound = self._bound

        def has_come() -> bool:
            """Whether as much as a batch has is there, or all: what waits may be more than is held at once."""
            return receiver.wait(
                ASKED_S,
                lambda received: (
                    (received.has_whole and received.size_bytes >= BATCH_BYTES)
                    or max(received.end, receiver.seen) >= bound
                    or receiver.is_at_end
                ),
            )

        while begun.lsn < bound and not has_come():
            receiver.ask()

    def _span(self, begun: PostgresOffset, ends: PostgresOffset) -> MessageSpan:
        """What lies between two positions: received again where a batch was planned by a process that died."""
        receiver = self._receiving(begun)
        size = -1
        while not receiver.wait(RECEIVE_S, lambda received: received.end >= ends.lsn):
            with receiver.held() as received:
                size, before = received.size_bytes, size
            if size == before:
                raise PipelineFailedError(
                    f"slot {self._config.slot}: of the batch that was planned up to {lsn_text(ends.lsn)} nothing more "
                    f"came in {RECEIVE_S:.0f} s",
                    kind=ErrorKind.RETRYABLE,
                )
        with receiver.held() as received:
            span = received.up_to(ends.lsn)
        if span is None or span.weight != ends.changes - begun.changes:
            raise PipelineFailedError(
                f"slot {self._config.slot}: the changes between {lsn_text(begun.lsn)} and {lsn_text(ends.lsn)} are not "
                "those that the batch was planned with: the server or its slot is another one, or the publication was "
                "altered in between",
                kind=ErrorKind.INVALID_REQUEST,
            )
        return span

    # --- pieces -------------------------------------------------------------------------------------------------------

    def _pieces(
        self,
        span: MessageSpan,
        begun: PostgresOffset,
        rule: CopyRule | None,
        work: KeptValue[BatchWork],
        index: int,
        count: int,
    ) -> Iterator[ChangesOfStream]:
        forms: list[TableForm] = []
        held: dict[int, int] = {}

        def numbered(relation: Relation) -> int:
            form = self._catalog.form(relation)
            self._tables.refuse_other(form)
            forms.append(form)
            held[relation.oid] = len(forms) - 1
            return len(forms) - 1

        for relation in self._relations.values():
            numbered(relation)
        opened: list[BegunTransaction] = []
        number = begun.changes
        for parts, messages in runs_of(span.parts):
            versions = {oid: [(0, form)] for oid, form in held.items()}
            for place, relation in relations_in(messages):
                versions.setdefault(relation.oid, []).append((place, numbered(relation)))
            transactions = opened + transactions_of(messages)
            weights = np.cumsum(weights_of(messages))
            begins = np.cumsum(messages.kinds == BEGIN) + len(opened)
            whole = len(messages.starts)
            have_moved = keys_have_moved(messages)
            size = whole if parts else max(PIECE_MESSAGES, -(-whole // max(1, count)))
            for first in range(0, whole, size):
                last = min(first + size, whole)
                before = int(begins[first - 1]) if first else len(opened)
                is_inside = before > 0 and messages.kinds[first] != BEGIN
                own = transactions[before - 1 if is_inside else before : int(begins[last - 1])]
                sent = messages.cut(0, 0) if parts else messages.cut(first, last)
                stream = StreamedChanges(sent, forms, own, self._config.slot, self._placeholder)
                since = number + (int(weights[first - 1]) if first else 0)
                of_forms = _held_in(versions, first, last)
                yield ChangesOfStream(stream, of_forms, since, is_inside, rule, work, index, parts, have_moved)
            number += int(weights[-1])
            opened = [] if messages.kinds[-1] == COMMIT else transactions[-1:]


def _held_in(
    versions: dict[int, list[tuple[int, int]]], first: int, last: int
) -> dict[int, tuple[Positions, Positions]]:
    """The forms that hold somewhere between two messages, by the places from the first of these on."""
    found = {}
    for oid, given in versions.items():
        before = [form for since, form in given if since <= first]
        held = [(0, before[-1])] if before else []
        held += [(since - first, form) for since, form in given if first < since < last]
        if held:
            places, forms = zip(*held, strict=True)
            found[oid] = (np.array(places, np.int64), np.array(forms, np.int64))
    return found
