"""What errors carry besides their text: table, column, option, path."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog, ChangeType, InvalidRequestError, SetOption
from freshet.storage.exceptions import CorruptDataError, StorageError
from freshet.storage.table import Table

KEYED = {"schema": {"id": "BIGINT", "name": "STRING"}, "primary_keys": ["id"]}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


def create(**given: object) -> Callable[[Catalog], object]:
    arguments = {**KEYED, "options": {"bucket": "1"}, **given}
    return lambda catalog: catalog.create_table("db.t", **arguments)  # type: ignore[arg-type]


def opened(act: Callable[[Table], object]) -> Callable[[Catalog], object]:
    return lambda catalog: act(catalog.create_table("db.t", **KEYED, options={"bucket": "1"}))  # type: ignore[arg-type]


def write(**columns: list[object]) -> Callable[[Catalog], object]:
    return opened(lambda table: table.writer("u").write(pa.table(columns)))


@pytest.mark.parametrize(
    ("act", "facts"),
    [
        (create(options={"bucket": "0"}), {"option": "bucket"}),
        (create(options={"bucket": "many"}), {"option": "bucket"}),
        (create(options={"bukcet": "1"}), {"option": "bukcet"}),
        (create(options={"bucket": "1", "sequence.field": "x"}), {"option": "sequence.field", "column": "x"}),
        (create(options={"bucket": "1", "data-evolution.enabled": "true"}), {"option": "data-evolution.enabled"}),
        (create(options={"bucket": "1", "fields.name.count-limit": "3"}), {"option": "fields.name.count-limit"}),
        (create(schema={"id": "BIGINT", "name": "VARCHAR(x)"}), {"column": "name"}),
        (opened(lambda table: table.alter(AddColumn("name", "INT"))), {"column": "name"}),
        (opened(lambda table: table.alter(ChangeType("id", "STRING"))), {"column": "id"}),
        (opened(lambda table: table.alter(SetOption("bucket", "x"))), {"option": "bucket"}),
        (write(id=["a"], name=["b"]), {"column": "id"}),
        (write(id=[None], name=["b"]), {"column": "id"}),
        (write(id=[1], name=["b"], more=[1]), {"column": "more"}),
        (write(id=[1], name=["b"], _ROW_KIND=["?"]), {"column": "_ROW_KIND"}),
    ],
)
def test_an_error_says_what_it_is_about(
    catalog: Catalog, act: Callable[[Catalog], object], facts: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        act(catalog)
    assert {name: getattr(raised.value, name) for name in facts} == facts


def test_errors_survive_a_copy_and_a_pickle() -> None:
    errors = [
        InvalidRequestError("no", table="db.t", column="c", option="bucket", path="/t"),
        CorruptDataError("torn", path="/t/f", byte_offset=7),
    ]
    for error in errors:
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_another_wording_keeps_class_and_facts() -> None:
    error = CorruptDataError("torn", path="/t/f", byte_offset=7)
    again = error.reworded("db.t: torn", table="db.t", path="/elsewhere")
    assert isinstance(again, CorruptDataError)
    assert (str(again), again.table, again.path, again.byte_offset) == ("db.t: torn", "db.t", "/t/f", 7)
    assert error.table is None


def test_facts_are_none_unless_given() -> None:
    assert vars(StorageError("x")) == {"table": None, "column": None, "option": None, "path": None}
