"""Source tables that are followed: tables are created for those that are new, and altered where they bring new columns.

    a source table ─┬─ of no table yet: its table is opened, or created as its rule says
                    ├─ of a table that another goes to: refused, unless their rule says merge
                    └─ new or wider columns: the table is altered (`table_changes`), unless schema_evolution says freeze

A table that it fails for good with is set apart; what only the pipeline file can mend stops the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sync.known_tables import PERMANENT, KnownTables, Target
from freshet.pipeline.sync.ledger import APART, LedgerRow, Offsets, anew_text
from freshet.pipeline.sync.routes import Route, refuse_target, route_of
from freshet.pipeline.sync.table_changes import (
    changes_of,
    joining_statements,
    new_table,
    rename_statement,
    renamed_columns,
)
from freshet.storage import exceptions as storage
from freshet.storage.schema.change import AddColumn, ChangeType, SchemaChange


class FollowedSources:
    """Makes the tables of one run fit what is new in their sources."""

    def __init__(self, known: KnownTables) -> None:
        self._known = known
        self._config, self._catalog = known.config, known.catalog
        self._state, self._targets = known.state, known.targets
        self.without_table: set[SourceTable] = set()
        """Source tables of which the batch has deletions alone, and which have no table yet."""

    def follow(self, seen: Sequence[SeenSchema], micro_batch_id: int, starts: Offsets) -> None:
        """Creates and alters tables so that the records fit. Raises where that must stop the query."""
        found: dict[SourceTable, DescribedTable] = {}
        for each in seen:
            described = DescribedTable.of(each.described)
            known = found.get(each.table)
            found[each.table] = described if known is None else known.joined(described)
        self._create_new(found)
        for source, described in sorted(found.items()):
            route = route_of(self._config.sync, source)
            assert isinstance(route, Route), "a decoder describes what a rule takes"
            try:
                self._follow_one(source, route, described)
            except PERMANENT as error:
                self._known.apart(route.target, str(error), micro_batch_id, starts, source=source)
            except InvalidRequestError as error:
                raise self._known.failed(str(error), micro_batch_id) from error

    def _create_new(self, found: Mapping[SourceTable, DescribedTable]) -> None:
        """Creates the tables that no run has known yet, side by side, as each mostly waits for a disk or a store.

        What one of them is refused for, its turn finds again.
        """
        calls: dict[str, Callable[[], str | None]] = {}
        for source, described in sorted(found.items()):
            route = route_of(self._config.sync, source)
            assert isinstance(route, Route), "a decoder describes what a rule takes"
            is_known = route.target in self._targets or route.target in self._state.rows
            if not is_known and not described.is_empty:
                calls.setdefault(route.target, partial(self._created, source, route, described))
        told = self._known.ledger.table.handle.env.for_tables(list(calls.values()))
        self._known.events += [text for text in told if text is not None]

    def _created(self, source: SourceTable, route: Route, described: DescribedTable) -> str | None:
        """What is to be told where the table was created."""
        try:
            refuse_target(self._config, source, route)
            return None if self._catalog.has_table(route.target) else self._create(source, route, described)
        except (*PERMANENT, InvalidRequestError):
            return None

    def _follow_one(self, source: SourceTable, route: Route, described: DescribedTable) -> None:
        target = self._targets.get(route.target)
        row = self._state.rows.get(route.target)
        if target is None and row is not None and row.state == APART:
            self._hold_back_too(source, row)
            return
        if target is None:
            target = self._open(source, route, described)
            if target is None:
                return
        elif source not in target.sources:
            self._refuse_second(source, target, route)
            target.sources.add(source)
            self._known.events.append(f"{source} goes into table {target.name} too")
        if described.is_empty:
            return
        while not self._is_followed(target, source, route, described):
            pass

    def _hold_back_too(self, source: SourceTable, row: LedgerRow) -> None:
        """Another source of a table that is set apart: `resume` reads its records with the others'."""
        row = row.with_sources([*row.source_tables, source])
        self._state.write(row)
        self._known.events.append(f"{source} goes into table {row.table_name}, which is set apart: it is held back too")

    def _is_followed(self, target: Target, source: SourceTable, route: Route, described: DescribedTable) -> bool:
        """False where another driver has changed the table meanwhile: what is left to change is found again."""
        target.commit.follow_schema(is_planned=False)
        table = target.commit.table
        respelled = described.respelled(table.schema.column_names)
        if respelled and self._config.sync.schema_evolution == "freeze":
            (name, column), *_ = respelled.items()
            raise InvalidRequestError(
                f"the source table {source} has renamed {column} to {name} ({described.where}), and schema_evolution "
                f"is freeze. Nothing was committed. Rename the column of table {target.name}, or set "
                "schema_evolution: lenient, which goes on with the column as it is"
            )
        self._respell(target, source, respelled, described)
        changes, no_names = changes_of(table.schema, route, described.named(respelled))
        for name in no_names:
            if name not in target.passed_over:
                self._known.events.append(
                    f"field {name!r} of {source} cannot be a column of {target.name}, and is left out"
                )
        target.passed_over |= set(no_names)
        if not changes:
            return True
        pairs = renamed_columns(table.schema, changes, described.lacks)
        renames = "".join(f". If {old} is {new} now: {rename_statement(target.name, old, new)}" for old, new in pairs)
        if self._config.sync.schema_evolution == "freeze":
            raise InvalidRequestError(
                f"the source table {source} has changed ({described.where}): {_text(changes)}, and schema_evolution is "
                f"freeze. Nothing was committed. Alter table {target.name}, or set schema_evolution: lenient{renames}"
            )
        try:
            table.alter(*changes)
        except storage.InvalidRequestError:
            if table.engine.latest_schema_id() == table.schema.id:
                raise
            return False
        target.commit.follow_schema(is_planned=False)
        self._known.events.append(f"table {target.name} follows {source}: {_text(changes)}")
        if pairs:
            known = " and ".join(f"{old} (now {new})" for old, new in pairs)
            self._known.events.append(
                f"{source} may have renamed {known}, which its records lack: of table {target.name} both columns stay. "
                "To join them, stop the pipeline and run, by freshet sql: "
                f"{joining_statements(table.schema, target.name, pairs)}"
            )
        return True

    def _respell(
        self, target: Target, source: SourceTable, respelled: Mapping[str, str], described: DescribedTable
    ) -> None:
        """Fields whose names differ from those of their columns in the case of their letters alone."""
        for name in [each for each, column in target.spellings.items() if column in described.columns]:
            del target.spellings[name]
        for name, column in respelled.items():
            if name not in target.spellings and name not in target.passed_over:
                self._known.events.append(f"field {name!r} of {source} fills column {column} of {target.name}")
            if described.is_typed:
                target.spellings = {**{each: of for each, of in target.spellings.items() if of != column}, name: column}
            else:  # a record may have both, of which one is NULL
                target.passed_over.add(name)

    def _open(self, source: SourceTable, route: Route, described: DescribedTable) -> Target | None:
        """The table of a source table that is met for the first time."""
        refuse_target(self._config, source, route)
        self._refuse_other_source(source, route)
        if not self._catalog.has_table(route.target):
            if described.is_empty:
                self.without_table.add(source)
                return None
            self._known.events.append(self._create(source, route, described))
        target = self._known.opened(route)
        if target.commit.table.engine.moves_rows:
            raise InvalidRequestError(
                f"table {route.target}: its key does not have all partition columns, so its rows move between "
                "partitions, which sync does not write; give it a pipeline file of its own"
            )
        target.sources.add(source)
        self._targets[route.target] = target
        self.without_table.discard(source)
        return target

    def _create(self, source: SourceTable, route: Route, described: DescribedTable) -> str:
        """Creates the table of a source table as its records and its rule say; gives what is to be told."""
        if not described.is_typed and self._config.sync.of_schema != "infer":
            raise InvalidRequestError(
                f"the records of {source} bring no schema ({described.where}): set schema: infer under sync "
                f"(whole numbers become BIGINT, true and false BOOLEAN, all else STRING), or create the table "
                f"{route.target} yourself"
            )
        new = new_table(route, described)
        try:
            self._catalog.create_table(
                route.target,
                schema=new.columns,
                primary_keys=new.primary_keys,
                partition_keys=new.partition_keys,
                options=new.options,
                if_not_exists=True,
            )
        except storage.InvalidRequestError as error:
            raise InvalidRequestError(
                f"table {route.target} for {source} cannot be created as rule {route.rule_index} of sync.tables "
                f"says: {error}"
            ) from error
        return f"table {route.target} is created for {source}"

    def _refuse_second(self, source: SourceTable, target: Target, route: Route) -> None:
        if not (target.route.is_merged and route.is_merged):
            known = ", ".join(str(each) for each in sorted(target.sources))
            raise InvalidRequestError(
                f"{known} and {source} both go to table {target.name}: rows of one would overwrite rows of the other. "
                "If they are shards of one table, set merge: true in their rule; else send them to different tables"
            )

    def _refuse_other_source(self, source: SourceTable, route: Route) -> None:
        """Refuses a table that the ledger says is one of other sources, unless its rule says merge."""
        row = self._state.rows.get(route.target)
        if row is not None and not route.is_merged and set(row.source_tables) - {source}:
            others = ", ".join(map(str, row.source_tables))
            raise InvalidRequestError(
                f"rule {route.rule_index} of sync.tables sends {source} to {route.target}, which the ledger says has "
                f"the rows of {others}. If it goes on as the same table, set merge: true in the rule; or "
                f"{anew_text(self._config, route.target)}; else send it to another table"
            )


def _text(changes: Sequence[SchemaChange]) -> str:
    added = [f"{each.name} {each.type}" for each in changes if isinstance(each, AddColumn)]
    widened = [f"{each.name} {each.type}" for each in changes if isinstance(each, ChangeType)]
    texts = [f"new {', '.join(added)}"] if added else []
    return "; ".join([*texts, *([f"wider {', '.join(widened)}"] if widened else [])])
