"""The work of a query whose sources are tables: which columns of theirs fill which of the table that is written.

A column is filled by the one of its name, or by what `select` says: a name, or an expression that is translated
(`expressions`). It fits as a column of a frame does: it has the type in which the target's travels, or a narrower one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.pipeline.config.frame_options import PlannedStream
from freshet.pipeline.config.model import PipelineConfig, revealed
from freshet.pipeline.config.source_options import nearest
from freshet.pipeline.decode.carriers import carrier_arrow_type, is_nanos
from freshet.pipeline.decode.outcomes import BUCKET, DATA_PREFIX, KIND
from freshet.pipeline.decode.planning import meaning_settings, plain_reference
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError
from freshet.pipeline.expressions.column_expression import carrier
from freshet.pipeline.expressions.evaluation import ExpressionSql, column_index, column_sql
from freshet.pipeline.expressions.grammar import NotOursError, parse
from freshet.pipeline.expressions.translator import Translator
from freshet.pipeline.expressions.values import BIGINT, STRING, Value
from freshet.pipeline.query.driver.schema_follow import check_names
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.task_plan import PackPlan, TaskPlan, pack_plan
from freshet.pipeline.query.driver.work import TableWorks
from freshet.pipeline.query.task.batch_work import Packer
from freshet.pipeline.query.task.change_rows import ComputedExpression, FilledColumn, RowPacker
from freshet.pipeline.query.task.key_task import INDEX
from freshet.pipeline.query.wire.read_count import POSITION
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.model.data_type import DataField, DataType, ScalarType, TypeRoot

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


class SelectedColumn(Frozen):
    """What fills a column of the target: a column by its number, or an expression; `type` is that of the carrier."""

    type: pa.DataType
    source: int | None = None
    computed: ComputedExpression | None = None


class SelectedRows(Frozen):
    """What a source fills, by the names of the target's columns; `read` are those of the table that is read."""

    read: tuple[DataField, ...]
    columns: Mapping[str, SelectedColumn]


def selected_rows(config: PipelineConfig, index: int, stream: PlannedStream) -> SelectedRows:
    """What the columns of a stream fill. Raises `ConfigurationError` naming the entry of `select` that is wrong, or
    that only Spark computes."""
    names = list(stream.schema.names)
    wanted = config.sources[index].select or {name: f"`{name}`" for name in config.table.columns if name in names}
    known = known_columns(stream)
    found = {}
    for name, text in wanted.items():
        try:
            found[name] = selected_column(text, known, revealed(config.spark))
        except NotOursError as error:
            raise ConfigurationError(f"select.{name}: only Spark computes {text!r} ({error})") from error
        except InvalidRequestError as error:
            raise ConfigurationError(f"select.{name}: {error}") from error
    return SelectedRows(stream.fields, found)


def known_columns(stream: PlannedStream) -> dict[str, tuple[int, DataType]]:
    """The columns that `select` may read, by number and type."""
    types = [field.type for field in stream.fields]
    for appended in list(stream.schema)[len(types) :]:
        types.append(BIGINT if pt.is_integer(appended.type) else STRING)
    return {name: (index, types[index]) for index, name in enumerate(stream.schema.names)}


def selected_column(
    text: str, known: Mapping[str, tuple[int, DataType]], settings: Mapping[str, str]
) -> SelectedColumn:
    """What an entry of `select` gives under these settings of Spark. Raises `NotOursError` where only Spark computes
    it, `InvalidRequestError` where it reads a column that is not there."""
    plain = plain_reference(text)
    if plain is not None and len(plain) == 1:
        index, data_type = known[_resolved(plain[0], known)]
        return SelectedColumn(carrier_arrow_type(data_type), index)
    for setting in meaning_settings(settings):
        raise NotOursError(f"under the setting {setting}")
    parsed = parse(text)
    values: dict[tuple[str, ...], Value] = {}
    for reference in parsed.references:
        if len(reference) == 1:
            index, data_type = known[_resolved(reference[0], known)]
            with suppress(NotOursError):
                values[reference] = Value(column_sql(index), carrier(data_type))
    value = Translator(values).value(parsed.tree)
    reads = tuple(sorted(column_index(each.sql) for each in values.values()))
    reason = f"{text!r} cannot be computed for a row: {' or '.join(value.causes)}"
    kind = pa.null() if value.type is None else carrier_arrow_type(value.type)
    return SelectedColumn(kind, computed=ComputedExpression(ExpressionSql(value.sql, value.fails), reads, reason))


def _resolved(name: str, known: Mapping[str, Any]) -> str:
    """The column that Spark finds by this name: letters count only where there is another column of them."""
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    if len(alike) != 1:
        raise InvalidRequestError(f"the table read has no column {name}{nearest(name, known)}")
    return alike[0]


class RowWorks(TableWorks):
    """The work on rows of tables."""

    def __init__(
        self, commit: TableCommit, config: PipelineConfig, tasks: TaskPlan, sources: Sequence[SelectedRows]
    ) -> None:
        """`sources` are those of the file, in its order."""
        self._sources = sources
        super().__init__(commit, config, tasks, pipeline=config.name, dead_letters=None)

    def _check(self) -> None:
        """Columns may come and go while rows are read, as long as those that are filled fit."""

    def _way_now(self) -> PackPlan:
        table = self._commit.table
        names = [field.name for field in self._fields()]
        return pack_plan(
            table.schema, table.options, self._tasks, is_rescaled=table.engine.is_rescaled(), columns=names
        )

    def _fields(self) -> list[DataField]:
        """The columns that cross: those that a source fills, and those that place a row and have a default."""
        schema, options = self._commit.table.schema, self._commit.table.options
        given = {name: None for source in self._sources for name in source.columns}
        check_names(list(given), schema)
        placing = {*schema.primary_keys, *schema.partition_keys, *options.bucket_key}
        return [
            field
            for field in schema.fields
            if field.name in given or (field.default_value is not None and field.name in placing)
        ]

    def _decoding(self) -> tuple[pa.Schema, tuple[str, ...], dict[int, Packer]]:
        table, fields = self._commit.table, self._fields()
        head = [pa.field(BUCKET, pa.int32())]
        head += [] if self._way.onward is None else [pa.field(INDEX, pa.binary())]
        head += [pa.field(KIND, pa.string()), pa.field(POSITION, pa.int64())]
        data = [pa.field(f"{DATA_PREFIX}{index}", carrier_arrow_type(field.type)) for index, field in enumerate(fields)]
        schema = pa.schema([*head, *data])
        rule = BucketRule.of(table.schema, table.options) if self._way.rule.has_bucket else None
        given = {name for source in self._sources for name in source.columns}
        packers: dict[int, Packer] = {
            index: RowPacker(
                source.read,
                tuple(_filled(field, source, has_default=field.name not in given) for field in fields),
                self._way.rule,
                rule,
                schema,
            )
            for index, source in enumerate(self._sources)
        }
        return schema, tuple(field.name for field in fields), packers


def _filled(field: DataField, source: SelectedRows, *, has_default: bool) -> FilledColumn:
    selected = source.columns.get(field.name)
    if selected is None:
        return FilledColumn(field, has_default=has_default)
    if not fits(selected.type, field):
        raise InvalidRequestError(
            f"column {field.name!r} of the rows that are read is {selected.type}, the table's is {field.type}, which "
            f"travels as {carrier_arrow_type(field.type)}; cast it in select"
        )
    return FilledColumn(field, selected.source, selected.computed)


def fits(found: Any, field: DataField) -> bool:
    """Whether a column of a carrier of this type becomes that of the table, and nothing is lost."""
    wanted: Any = carrier_arrow_type(field.type)
    if _same(found, wanted) or pt.is_null(found):
        return True
    if is_nanos(field.type) and pt.is_timestamp(found):
        root = TypeRoot.TIMESTAMP if found.tz is None else TypeRoot.TIMESTAMP_LTZ
        return isinstance(field.type, ScalarType) and field.type.root is root
    if found in _INTEGERS and wanted in _INTEGERS:
        return _INTEGERS.index(found) < _INTEGERS.index(wanted)
    if pt.is_decimal(found) and pt.is_decimal(wanted):
        return found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale
    return bool(found == pa.float32() and wanted == pa.float64())


def _same(found: Any, wanted: Any) -> bool:
    """Equal but for what may be NULL, which is checked row by row."""
    if not pt.is_nested(found) or found.id != wanted.id or found.num_fields != wanted.num_fields:
        return bool(found == wanted)
    pairs = [(found.field(index), wanted.field(index)) for index in range(found.num_fields)]
    is_struct = pt.is_struct(found)
    return all((not is_struct or left.name == right.name) and _same(left.type, right.type) for left, right in pairs)
