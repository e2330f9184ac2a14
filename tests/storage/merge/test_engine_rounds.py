"""Merges of every engine in small rounds: runs cut anywhere, raw runs of spilled rows, only the columns asked for.

Tables of tests are small; here a section takes many rounds, as large tables do.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from freshet.storage.merge.engine import merge_function, row_order
from freshet.storage.merge.key_order import RowOrder
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merge_reader import merge_section, merge_table, sort_table
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, TableSchema, assign_ids
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options.core import CoreOptions
from tests.kit.engine_chance import any_shape
from tests.kit.engine_histories import Shape, can_be_merged_raw
from tests.kit.engine_merges import KIND_COLUMN, KINDS, Values
from tests.kit.engine_oracles import EngineOracle
from tests.kit.engine_shapes import LATER_SHAPES, SHAPES
from tests.kit.engine_tables import arrow_rows, schedule_options, texts
from tests.kit.quick import those_now

ROUNDS = [
    case
    for case in those_now((*SHAPES, *LATER_SHAPES), lambda number, shape: number % 4 == 2 or shape in LATER_SHAPES)
    if can_be_merged_raw(case.values[0])
]


def merging(shape: Shape) -> tuple[RowOrder, MergeFunction]:
    bare = [DataField(0, name, parse_sql_type(kind)) for name, kind in shape.types.items()]
    fields, highest = assign_ids(bare)
    options = schedule_options(shape.table_options)
    schema = TableSchema(0, fields, highest, tuple(shape.partition_keys), tuple(shape.primary_keys), options)
    core = CoreOptions.parse(options, has_primary_key=True)
    order = row_order(schema, core)
    return RowOrder(tuple(shape.primary_keys), order.sequence_columns, order.sequence_descending), merge_function(
        schema, core
    )


def stored(rows: list[Values], shape: Shape, first_number: int) -> pa.Table:
    table = arrow_rows(rows, shape.types).drop_columns([KIND_COLUMN])
    kinds = pa.array([KINDS.index(row[KIND_COLUMN]) for row in rows], pa.int8())
    numbers = pa.array(range(first_number, first_number + len(rows)), pa.int64())
    return table.add_column(0, VALUE_KIND_COLUMN, kinds).add_column(0, SEQUENCE_NUMBER_COLUMN, numbers)


def flushes(shape: Shape, source: Random, oracle: EngineOracle) -> list[pa.Table]:
    """Rows of some commits, all of which can be merged; the oracle takes them too."""
    tables = []
    for _ in range(4):
        first = oracle.accepted
        rows = oracle.mergeable([shape.row(source, 9) for _ in range(source.randint(20, 60))])
        if shape.oracle().engine.ignores_deletes:
            rows = [row for row in rows if row[KIND_COLUMN] in ("+I", "+U")]
        if shape.options.get("ignore-update-before"):
            rows = [row for row in rows if row[KIND_COLUMN] != "-U"]
        oracle.write(rows)
        oracle.commit()
        tables.append(stored(rows, shape, first))
    return tables


@pytest.mark.few(4)
@pytest.mark.parametrize("shape", ROUNDS, ids=lambda shape: shape.name)
def test_small_rounds_and_raw_runs_give_what_the_oracle_says(shape: Shape) -> None:
    check(shape, Random(21))


@pytest.mark.dear("tables with engines by chance")
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 120), marks=pytest.mark.slow)], ids=["few", "many"])
def test_engines_by_chance_in_small_rounds(seeds: range) -> None:
    for seed in seeds:
        source = Random(seed)
        shape = any_shape(source)
        options = {name: text for name, text in shape.options.items() if name != "force-lookup"}
        check(replace(shape, name=f"seed {seed}", options=options), source)


def check(shape: Shape, source: Random) -> None:
    oracle = replace(shape.oracle(), by_paimon=True)
    order, function = merging(shape)
    runs = []
    for number, table in enumerate(flushes(shape, source, oracle)):
        at_once = merge_table(table, order, function)
        spilled = [sort_table(table.slice(at, 13), order) for at in range(0, table.num_rows, 13)]
        raw = merge_section(
            [run.to_batches(max_chunksize=source.randint(1, 5)) for run in spilled],
            order,
            function,
            drop_delete=False,
            fill_rows=source.randint(1, 9),
            keys_repeat=True,
        )
        flushed = pa.Table.from_batches(raw, at_once.schema)
        assert texts(flushed, shape.decoders) == texts(at_once, shape.decoders), f"{shape.name}, flush {number}"
        runs.append(at_once)
    some = tuple(name for name in shape.types if source.random() < 0.4) or ("k",)
    for columns in (tuple(shape.types), some):
        seen = {*function.columns_needed(columns), *order.key_columns, *order.sequence_columns}
        names = [SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, *(name for name in shape.types if name in seen)]
        section = merge_section(
            [run.select(names).to_batches(max_chunksize=source.randint(1, 5)) for run in runs],
            order,
            function,
            drop_delete=True,
            columns=columns,
            fill_rows=source.randint(1, 9),
        )
        wanted = arrow_rows(list(oracle.rows().values()), {name: shape.types[name] for name in columns})
        found = pa.Table.from_batches(section, wanted.drop_columns([KIND_COLUMN]).schema)
        sets = {name: None for name in shape.sets if name in columns}
        assert texts(found.select(list(columns)), sets) == texts(wanted, sets), shape.name
