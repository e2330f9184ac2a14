"""pandas and polars frames, wherever rows, keys or columns are taken and given."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet import Catalog, InvalidRequestError, Table
from tests.kit.frames import frame_library

COLUMNS = {"id": "BIGINT", "n": "INT", "s": "STRING"}
BEYOND = 2**53


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    options = {"bucket": "1", "changelog-producer": "input"}
    return catalog.create_table("db.t", schema=COLUMNS, primary_keys=["id"], options=options)


@pytest.fixture(scope="module")
def pd() -> Any:
    return frame_library("pandas")


@pytest.fixture(scope="module")
def pl() -> Any:
    return frame_library("polars")


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(["id", "n"]).to_arrow().to_pylist())


TAKEN: dict[str, tuple[Callable[[Any, Any], Any], list[tuple[Any, ...]]]] = {
    "INT with NaN": (lambda pd, pl: pd.DataFrame({"id": [1, 2], "n": [7, np.nan]}), [(1, 7), (2, None)]),
    "INT of floats, polars": (lambda pd, pl: pl.DataFrame({"id": [1, 2], "n": [7.0, None]}), [(1, 7), (2, None)]),
    "floats of a dict": (lambda pd, pl: {"id": np.array([1.0, 2.0]), "n": [7, None]}, [(1, 7), (2, None)]),
    "floats of Arrow": (lambda pd, pl: pa.table({"id": [1.0, 2.0**53 - 1]}), [(1, None), (2**53 - 1, None)]),
    "no column, no row": (lambda pd, pl: pd.DataFrame(), []),
    "no column, no row, polars": (lambda pd, pl: pl.DataFrame(), []),
    "no row, types unknown": (lambda pd, pl: pd.DataFrame({"id": [], "s": []}), []),
    "no row, types unknown, polars": (lambda pd, pl: pl.DataFrame({"id": [], "s": []}), []),
    "no row, columns alone": (lambda pd, pl: pd.DataFrame(columns=["n"]), []),
    "the index is the key": (lambda pd, pl: pd.DataFrame({"n": [7]}, index=pd.Index([1], name="id")), [(1, 7)]),
    "keys are columns and index": (lambda pd, pl: pd.DataFrame({"id": [1]}).set_index("id", drop=False), [(1, None)]),
    "several levels": (lambda pd, pl: pd.DataFrame({"id": [1], "n": [7], "s": ["a"]}).set_index(["id", "n"]), [(1, 7)]),
    "an index without a name": (lambda pd, pl: pd.DataFrame({"id": [1, 2]}, index=[9, 5]), [(1, None), (2, None)]),
    "categories, polars": (
        lambda pd, pl: pl.DataFrame({"id": [1, 2], "n": [7, 8], "s": ["a", None]}).cast({"s": pl.Categorical}),
        [(1, 7), (2, 8)],
    ),
    "row kinds as categories, polars": (
        lambda pd, pl: pl.DataFrame({"id": [1, 2], "_ROW_KIND": ["+I", "-D"]}).cast({"_ROW_KIND": pl.Categorical}),
        [(1, None)],
    ),
    "rows that were chosen": (
        lambda pd, pl: pd.DataFrame({"id": range(5)}).iloc[[0, 1, 4]],
        [(0, None), (1, None), (4, None)],
    ),
}


@pytest.mark.parametrize("case", TAKEN)
def test_frames_are_taken_where_that_is_exact(table: Table, pd: Any, pl: Any, case: str) -> None:
    make, expected = TAKEN[case]

    table.upsert(make(pd, pl))

    assert rows_of(table) == expected


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a column twice": (
        lambda pd, pl: pd.DataFrame([[1, 2, 3]], columns=["id", "n", "n"]),
        "cannot be read as Arrow: Duplicate column names",
    ),
    "values of several types": (
        lambda pd, pl: pd.DataFrame({"id": [1, 2], "s": ["a", 5]}),
        "Conversion failed for column s with type object: Expected bytes",
    ),
    "a fraction": (lambda pd, pl: pd.DataFrame({"id": [1], "n": [1.5]}), "column 'n' .*1.5"),
    "too large": (lambda pd, pl: pd.DataFrame({"id": [1], "n": [2.0**40]}), "column 'n'"),
    "beyond the whole numbers of floats": (
        lambda pd, pl: pd.DataFrame({"id": [float(BEYOND)]}),
        "column 'id' .*2\\^53",
    ),
    "the NaN of polars": (lambda pd, pl: pl.DataFrame({"id": [1], "n": [np.nan]}), "column 'n' .*None"),
    "NaN in a list": (lambda pd, pl: [{"id": 1, "n": np.nan}], "column 'n' .*None"),
    "NaN of the key": (lambda pd, pl: pd.DataFrame({"id": [1, np.nan]}), "'id' .*primary key"),
    "an index that is no column": (
        lambda pd, pl: pd.DataFrame({"id": [1]}, index=pd.Index([5], name="zz")),
        r"no column 'zz'.*reset_index\(drop=True\)",
    ),
    "no row, an unknown column": (lambda pd, pl: pd.DataFrame({"zz": []}), "no column 'zz'"),
    "a plan of polars": (lambda pd, pl: pl.LazyFrame({"id": [1]}), r"LazyFrame.*collect\(\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_frames_are_refused_with_the_remedy(table: Table, pd: Any, pl: Any, case: str) -> None:
    make, message = REFUSED[case]

    with pytest.raises(InvalidRequestError, match=message):
        table.upsert(make(pd, pl))

    assert not rows_of(table)


KEYS: dict[str, Callable[[Any, Any], Any]] = {
    "pandas": lambda pd, pl: pd.DataFrame({"id": [2, 5]}),
    "index": lambda pd, pl: pd.DataFrame(index=pd.Index([2, 5], name="id")),
    "floats": lambda pd, pl: pd.DataFrame({"id": [2.0, 5.0]}),
    "polars": lambda pd, pl: pl.DataFrame({"id": [2, 5]}),
    "dicts": lambda pd, pl: [{"id": 2}, {"id": 5}],
    "columns": lambda pd, pl: {"id": [2, 5]},
    "a reader": lambda pd, pl: pa.table({"id": [2, 5]}).to_reader(),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_are_looked_up_by_whatever_holds_them(table: Table, pd: Any, pl: Any, case: str) -> None:
    table.upsert([{"id": 1, "n": 7}, {"id": 2, "n": 8}])

    found = table.lookup(KEYS[case](pd, pl), ["n"])

    assert found.rows.column("n").to_pylist() == [8]
    assert found.positions.tolist() == [0, -1]


SCHEMAS: dict[str, Callable[[Any, Any], Any]] = {
    "pandas": lambda pd, pl: pd.DataFrame({"id": [1], "s": ["a"], "at": pd.to_datetime(["2024-01-01"]).as_unit("us")}),
    "index": lambda pd, pl: pd.DataFrame(
        {"s": ["a"], "at": pd.to_datetime(["2024-01-01"]).as_unit("us")}, index=pd.Index([1], name="id")
    ),
    "polars": lambda pd, pl: pl.DataFrame({"id": [1], "s": ["a"], "at": [datetime.datetime(2024, 1, 1)]}),
    "polars's schema": lambda pd, pl: pl.Schema({"id": pl.Int64, "s": pl.String, "at": pl.Datetime("us")}),
    "Arrow's rows": lambda pd, pl: pa.table({"id": [1], "s": ["a"], "at": [datetime.datetime(2024, 1, 1)]}),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_frame_says_what_the_columns_are(catalog: Catalog, pd: Any, pl: Any, case: str) -> None:
    created = catalog.create_table("db.of", schema=SCHEMAS[case](pd, pl), primary_keys=["id"], options={"bucket": "1"})

    assert {field.name: str(field.type) for field in created.schema.fields} == {
        "id": "BIGINT NOT NULL",
        "s": "STRING",
        "at": "TIMESTAMP(6)",
    }


def test_rows_are_streams_of_arrow(table: Table, pd: Any, pl: Any) -> None:
    table.upsert([{"id": 1, "n": 7}])
    for given in (table.scan(), table.changelog(), table.system("files").scan()):
        assert pa.table(given).num_rows == pl.DataFrame(given).height == given.to_polars().height == 1
        assert pa.RecordBatchReader.from_stream(given).schema.names == given.schema.names
    assert isinstance(table.scan().to_pandas(), pd.DataFrame)
    table.upsert(table.scan())
    assert rows_of(table) == [(1, 7)]


MOMENTS: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "a datetime with a zone": (lambda pd: datetime.datetime.now(datetime.UTC), None),
    "a Timestamp with a zone": (lambda pd: pd.Timestamp.now(tz="Europe/Berlin"), None),
    "a whole number of numpy": (lambda pd: np.int64(1 << 42), None),
    "a datetime without a zone": (lambda pd: datetime.datetime(2050, 1, 1), "no time zone"),
    "a Timestamp without a zone": (lambda pd: pd.Timestamp("2050-01-01"), "no time zone"),
    "a datetime64": (lambda pd: np.datetime64("2050-01-01"), "datetime with a time zone"),
    "a date": (lambda pd: datetime.date(2050, 1, 1), "datetime with a time zone"),
    "a text": (lambda pd: "2050-01-01T00:00:00Z", "datetime with a time zone"),
    "seconds": (lambda pd: 1e10, "epoch milliseconds"),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_a_scan_as_of_a_moment(table: Table, pd: Any, case: str) -> None:
    table.upsert([{"id": 1}])
    make, message = MOMENTS[case]
    if message is None:
        assert table.scan(timestamp_ms=make(pd)).count() == 1
    else:
        with pytest.raises(InvalidRequestError, match=message):
            table.scan(timestamp_ms=make(pd))


def test_a_dict_without_a_row_kind_is_an_insert(table: Table) -> None:
    table.upsert([{"id": 1}, {"id": 2}])

    with table.writer("u") as writer:
        writer.write([{"id": 1, "_ROW_KIND": "-D"}, {"id": 9}, {"id": 2, "n": 3, "_ROW_KIND": "+U"}])
        writer.commit(1)

    assert rows_of(table) == [(2, 3), (9, None)]


def test_a_frame_of_spark_is_taken_without_its_stream_which_needs_pandas(table: Table) -> None:
    class Column:
        def __bool__(self) -> bool:
            raise ValueError("cannot convert column into bool")

    class SparkFrame:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise ImportError("pandas")

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(name)
            return Column()  # as frames of Spark Connect do

        def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
            return pa.table({"id": [1], "n": [7]})

    table.upsert(SparkFrame())
    table.merge(SparkFrame(), ["id"]).when("matched then update set n = target.n + source.n").execute()

    assert rows_of(table) == [(1, 14)]
