"""Renamed columns on the driver: into the ledger first, then into the table.

Whoever finds a rename in the ledger brings the table to it: a run that died between the two is finished by the next,
and of two drivers one finds the columns as they should be.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.decode.schema_changes import FoundRenames
from freshet.pipeline.sync.ledger_state import LedgerState
from freshet.pipeline.sync.renames import NO_RENAMES, Renames, own_names, taken
from freshet.pipeline.sync.routes import Route
from freshet.storage import exceptions as storage
from freshet.storage.model.schema import TableSchema


class RenamedColumns:
    """Those of all tables of a pipeline; none where its file does not want renames to be followed."""

    def __init__(self, state: LedgerState, *, are_followed: bool) -> None:
        self._state = state
        self._are_followed = are_followed

    def of(self, name: str) -> Renames:
        """What is known of a table."""
        return Renames.of(self._state.renames_text(name)) if self._are_followed else NO_RENAMES

    def by_target(self) -> dict[str, Renames]:
        """What is known, by table."""
        return {name: self.of(name) for name, row in self._state.rows.items() if row.renames is not None}

    def take(self, route: Route, found: Sequence[FoundRenames], schema: TableSchema | None) -> list[str]:
        """Writes what was found for a table, which may not be there yet, into the ledger; gives what is to be said."""
        texts: Sequence[str] = ()

        def with_found(known: str | None) -> str:
            nonlocal texts
            renames, texts = taken(Renames.of(known), found, schema, own_names(route))
            return renames.to_text()

        self._state.write_renames(route.target, with_found)
        return [f"table {route.target}: column {text}" for text in texts]

    def apply(self, name: str, commit: TableCommit) -> list[str]:
        """Gives the columns of a table the newest names, unless they have them; gives what is to be said."""
        texts: list[str] = []
        while True:
            commit.follow_schema(is_planned=False)
            table, renames = commit.table, self.of(name)
            changes = renames.changes(table.schema)
            if not changes:
                return texts
            try:
                table.alter(*changes)
            except storage.NotFoundError:
                raise
            except storage.InvalidRequestError as error:
                if table.engine.latest_schema_id() != table.schema.id:
                    continue  # another program has altered the table meanwhile
                moved = {table.schema.by_name[each.name].id for each in changes if each.name in table.schema.by_name}
                self._state.write_renames(name, partial(_without, moved))
                texts.append(f"table {name} does not follow renamed columns of its source: {error}")
                continue
            commit.follow_schema(is_planned=False)
            now = {column.id: column.name for column in commit.table.schema.fields}
            moves = [f"{old.name} is {now[old.id]} now" for old in table.schema.fields if old.name != now.get(old.id)]
            texts.append(f"table {name} follows its source: column {', '.join(moves)}")


def _without(column_ids: Collection[int], known: str | None) -> str:
    """What the ledger has, where these columns keep their names."""
    return Renames.of(known).without(column_ids).to_text()
