"""The tables of a database that are copied: those that a publication has as a pipeline begins, and those that it gets.

A table that comes later is copied beside the stream too: from the batch on that has its first change, or from the look
at the publication that finds it. A table that has another name than before is no new one. One that the rules of a file
send nowhere is not copied; a run that finds it sent somewhere asks for a resync (`LakeTargets.problems`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from freshet.pipeline.config.model import PostgresConfig
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.local.postgres_offset import ended_name, published_before, write_published
from freshet.pipeline.postgres.copy_state import CopyState, TableName
from freshet.pipeline.postgres.publications import (
    LEFT_OUT,
    LakeTargets,
    PublishedTables,
    narrowed_problems,
    publication_problems,
    rekeyed_problems,
    rekeyed_table,
    remade_problems,
    remade_table,
    taken_tables,
)
from freshet.pipeline.postgres.server import ServerPlace, psycopg
from freshet.pipeline.postgres.source_check import without_columns
from freshet.pipeline.postgres.table_form import DEFAULT, FULL, TableForm
from freshet.pipeline.postgres.wire import Relation

_NO_OID: Final = 0
_SHOWN_MAX: Final = 10
_LOG: Final = logging.getLogger(__name__)


class CopiedTables:
    """The copied tables of one source; used by the thread of its query alone."""

    def __init__(
        self,
        place: ServerPlace,
        config: PostgresConfig,
        folder: WritableCheckpoint,
        index: int,
        lake_key: Collection[str] = (),
        targets: LakeTargets = LakeTargets(),  # noqa: B008 - it is frozen
    ) -> None:
        """`lake_key`: see `postgres_offset`."""
        self._targets = targets
        self._place, self._config, self._folder, self._index = place, config, folder, index
        self._lake_key = lake_key
        self._name, self._ended_name = f"postgres-{index}-copied", ended_name(index)
        self._known: dict[TableName, int] | None = None
        """Their oids, by their names."""
        self.published: PublishedTables = {}
        """What the publication had when it was last looked at."""
        self._seen: dict[TableName, tuple[int, Sequence[str]]] = {}
        """Oids and keys of the tables that are known."""

    def look(self, session: psycopg.Connection[Any]) -> None:
        """Refuses a publication that lacks what it had when it was last looked at, which is written down."""
        problems = list(publication_problems(session, self._config))
        before = published_before(self._folder, self._index)
        now = self._taken(session)
        if not problems:
            problems += narrowed_problems(session, self._config, before, now)
            problems += remade_problems(self._config, before, now)
            problems += rekeyed_problems(self._lake_key, before, now)
            problems += [] if self._config.snapshot == "never" else self._targets.problems(before, now)
        if problems:
            raise PipelineFailedError("\n".join(problems), kind=ErrorKind.INVALID_REQUEST)
        left = {
            name: each._replace(entry_oid=LEFT_OUT) for name, each in before.items() if not self._config.takes(*name)
        }
        for name in before.keys() - now.keys():
            if left.get(name) != before[name]:
                _LOG.warning(
                    "table %s is not there any more, or left out: what the lake has of it stays", ".".join(name)
                )
        if {**left, **now} != before:
            write_published(self._folder, self._index, {**left, **now})
        self._seen |= {name: (each.oid, each.key or ()) for name, each in now.items()}

    def refuse_other(self, form: TableForm) -> None:
        """Raises where changes are of another table than the one that had this name, or one of another key."""
        relation = form.relation
        name = relation.schema, relation.name
        oid, key = self._seen.setdefault(name, (relation.oid, form.key))
        problem = remade_table(*name) if oid != relation.oid else None
        if problem is None and relation.identity in (DEFAULT, FULL):
            problem = rekeyed_table(self._lake_key, *name, key, form.key)
        if problem is not None:
            raise PipelineFailedError(problem, kind=ErrorKind.INVALID_REQUEST)

    def begin(self) -> CopyState | None:
        """The copy of a pipeline that begins; None where nothing is copied."""
        with self._place.session() as session:
            self._taken(session)
        wanted = self._wanted
        self._keep({name: each.oid for name, each in wanted.items()})
        if self._config.snapshot == "never":
            return None
        if left := [".".join(name) for name in self.published if name not in wanted]:
            more = f" and {len(left) - _SHOWN_MAX} more" if len(left) > _SHOWN_MAX else ""
            text = f"{', '.join(left[:_SHOWN_MAX])}{more}"
            _LOG.warning("not copied, as sync.tables excludes them or has no rule for them: %s", text)
        return CopyState(tuple(wanted))

    def begin_again(self, copy: CopyState | None, names: Sequence[TableName]) -> CopyState:
        """The copy with these tables from their start, those that the source has now."""
        with self._place.session() as session:
            self._taken(session)
        self._keep(self._read() | {name: self.published[name].oid for name in names})
        others = {} if copy is None else {name: each for name, each in copy.progress.items() if name not in names}
        kept = () if copy is None else tuple(name for name in copy.tables if name not in names)
        return CopyState((*kept, *names), others)

    def with_new(self, copy: CopyState | None, relations: Iterable[Relation]) -> CopyState | None:
        """The copy with the tables that have come to the publication, without those that are left out of the file now;
        `relations` are those of the changes of a batch that is not planned yet."""
        if copy is not None:
            copy = copy.without(
                [name for name in copy.left if not self._config.takes(*name) or self._goes_nowhere(name)]
            )
        if self._config.snapshot != "initial":
            return copy
        known = self._read() | dict.fromkeys(() if copy is None else copy.tables, _NO_OID)
        oids = set(known.values())
        sent = {(each.schema, each.name): each.oid for each in relations}
        unknown = [name for name, oid in sent.items() if name not in known and oid not in oids]
        if any(self._config.takes(*name) and not self._goes_nowhere(name) for name in unknown):
            with self._place.session() as session:
                self._taken(session)
        new = tuple(name for name, each in self._wanted.items() if name not in known and each.oid not in oids)
        return copy if not new else (copy or CopyState(())).with_tables(new)

    def done(self, copy: CopyState | None) -> None:
        """A batch is in the lake; the tables of its copy are known from now on, and where tables that come are not
        copied all of them: they are not either after another `snapshot` in the file."""
        known = self._read()
        copied = () if copy is None else copy.tables
        came = () if self._config.snapshot == "initial" else self._wanted
        new = [name for name in (*copied, *came) if name not in known]
        if new:
            oids = {name: self.published[name].oid if name in self.published else _NO_OID for name in new}
            self._keep(known | oids)

    def refuse_renamed(self, name: TableName) -> None:
        """Raises where a table whose copy has not ended is not there, because it has another name now."""
        found = self._place.rows(
            "SELECT oid::regclass::text, to_regclass(format('%%I.%%I', %s::text, %s::text)) = oid "
            "FROM pg_class WHERE oid = %s",
            (*name, self._read().get(name, 0)),
        )
        if found and found[0][1]:
            raise PipelineFailedError(without_columns(found[0][0]), kind=ErrorKind.INVALID_REQUEST)
        if found:
            raise PipelineFailedError(
                f"table {'.'.join(name)} is {found[0][0]} since it was renamed, and its copy has not ended: give it "
                "its name back until it has (snapshot: initial copies a table under one name)",
                kind=ErrorKind.INVALID_REQUEST,
            )

    @property
    def is_ended(self) -> bool:
        """Whether all is copied, and nothing follows (`snapshot: only`)."""
        return self._config.snapshot == "only" and self._folder.read(self._ended_name) is not None

    def end(self) -> None:
        """Writes that down."""
        self._folder.replace(self._ended_name, self._config.slot)

    @property
    def _wanted(self) -> PublishedTables:
        """The published tables without those that go nowhere."""
        return {name: each for name, each in self.published.items() if not self._goes_nowhere(name)}

    def _goes_nowhere(self, name: TableName) -> bool:
        """Whether the rules of the file are known to send a published table nowhere."""
        return name in self.published and self.published[name].target == ""

    def _taken(self, session: psycopg.Connection[Any]) -> PublishedTables:
        """The tables of the publication as they are now."""
        self.published = self._targets.sent(session.info.dbname, taken_tables(session, self._config))
        return self.published

    def _read(self) -> dict[TableName, int]:
        if self._known is None:
            text = self._folder.read(self._name)
            self._known = {(schema, name): oid for schema, name, oid in json.loads(text or "[]")}
        return self._known

    def _keep(self, known: dict[TableName, int]) -> None:
        self._known = known
        self._folder.replace(self._name, json.dumps([[*name, oid] for name, oid in known.items()]))
