"""A query into one table: its rows are those of the batches, and new fields of its records become columns of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from freshet.pipeline.config.expectations import Expectation
from freshet.pipeline.decode.described_table import NEW_COLUMNS_MAX, DescribedTable
from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.broken_rules import TableRules
from freshet.pipeline.query.driver.engine import Engine, Offsets
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_rounds import BackgroundReport
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.storage import exceptions as storage
from freshet.storage.model.schema import TableSchema
from freshet.storage.schema.change import AddColumn
from freshet.storage.table_engine import CommitCheck, CommitMessage


class OneTable:
    """The one table of a query, as `Targets`."""

    has_ledger = False

    def __init__(
        self,
        commit: TableCommit,
        on_columns: Callable[[], TableSchema] | None = None,
        expect: Mapping[str, Expectation] = MappingProxyType({}),
    ) -> None:
        """`on_columns` is called when the table has got columns: the records of the batch are decoded for them from
        then on, by the schema that it gives. `expect` are the rules that decoders have judged the rows by."""
        self.lead = commit
        self._rules = (TableRules("", expect),)
        self._on_columns = on_columns
        self._events: list[str] = []

    def begin(self, micro_batch_id: int, check: CommitCheck, starts: Offsets) -> None:
        """`Targets.begin`."""

    def round(self, micro_batch_id: int, starts: Offsets, *, is_planned: bool = False) -> Sequence[TableCommit]:
        """`Targets.round`."""
        self.lead.follow_schema(is_planned=is_planned)
        return (self.lead,)

    def rules(self) -> Sequence[TableRules]:
        """`Targets.rules`."""
        return self._rules

    def judged(self, number: int, check: CommitCheck) -> None:
        """`Targets.judged`."""

    def follow(self, seen: Sequence[SeenSchema], micro_batch_id: int, starts: Offsets) -> None:
        """Adds the columns of these fields that the table does not have yet.

        Raises `InvalidRequestError` where there are more than are taken for a change of the source.
        """
        whole: DescribedTable | None = None
        for each in seen:
            described = DescribedTable.of(each.described)
            whole = described if whole is None else whole.joined(described)
        if whole is not None:
            self._events.append(self._with_columns(whole))
        if self._on_columns is not None:
            self.lead.decoded = self._on_columns()

    def _with_columns(self, whole: DescribedTable) -> str:
        """Adds the columns of these fields; gives what is said of it."""
        while True:
            self.lead.follow_schema(is_planned=False)
            table = self.lead.table
            columns, _ = whole.as_columns(table.schema.by_name)  # the others stay counted
            added = {name: text for name, text in columns.items() if name not in table.schema.by_name}
            if len(added) > NEW_COLUMNS_MAX:
                raise InvalidRequestError(
                    f"the records bring {len(added)} new fields at once (first record: {whole.where}); more than "
                    f"{NEW_COLUMNS_MAX} are not taken for a change of the source. Nothing was committed. If they are "
                    f"right, add the columns to table {table.name} with ALTER TABLE … ADD COLUMN and start again"
                )
            try:
                if added:
                    table.alter(*(AddColumn(name, text) for name, text in added.items()))
            except storage.InvalidRequestError:
                if table.engine.latest_schema_id() == table.schema.id:
                    raise
                continue  # another program has changed the table meanwhile
            self.lead.follow_schema(is_planned=False)
            if added:
                names = ", ".join(f"{name} {text}" for name, text in added.items())
                return f"table {table.name} follows its source: new {names} ({whole.where})"
            names = ", ".join(f"{name} {table.schema.by_name[name].type}" for name in columns)
            return f"table {table.name} has {names} by now, which another program added ({whole.where})"

    def forget_deletions(self) -> None:
        """`Targets.forget_deletions`."""

    def set_apart(self, number: int, error: Exception, micro_batch_id: int, starts: Offsets) -> bool:
        """`Targets.set_apart`: what the table fails of stops the query."""
        return False

    def lead_messages(
        self, batch: BatchIdentity, result: TaskResult, written: Sequence[int], pin: BatchPin
    ) -> Sequence[CommitMessage]:
        """The rows of the batch."""
        return result.messages.get(0, ())

    def committed(self, snapshot_ids: Sequence[int]) -> None:
        """`Targets.committed`."""

    def after_batch(self, engine: Engine, messages: Mapping[int, Sequence[CommitMessage]]) -> BackgroundReport | None:
        """`Targets.after_batch`."""
        return self.lead.after_batch(engine, messages.get(0, ()))

    def left_out(self, notes: Mapping[str, int]) -> tuple[str, ...]:
        """`Targets.left_out`."""
        return self.lead.left_out(notes)

    def take_events(self, notes: Mapping[str, int]) -> tuple[str, ...]:
        """`Targets.take_events`."""
        events, self._events = self._events, []
        return (*events, *self.lead.new_case_variants(notes))

    def check_last(self) -> None:
        """`Targets.check_last`."""
        self.lead.check_last()

    def close(self) -> None:
        """`Targets.close`."""
        self.lead.close()
