"""Odd arguments of every public method of the classes that people hold: taken, or refused by an error of ours."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, InvalidRequestError, StorageError, Table
from freshet.storage.model.arguments import answering_callers


def _deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(5000):
        found = [found]
    return found


ODD: dict[str, Any] = {
    "None": None,
    "a number": 5,
    "a negative number": -1,
    "many digits": 10**5000,
    "not a number": float("nan"),
    "true": True,
    "empty": "",
    "half a character": "\ud800",
    "a way out": "../x",
    "an escape sequence": "a\x1b[2J\nb",
    "brackets": "(" * 3000,
    "bytes": b"x",
    "a list": [],
    "a list of None": [None],
    "a deep list": _deep(),
    "a dict": {},
    "a dict of None": {5: None},
    "an object": object(),
}
QUICK = ("None", "half a character", "a deep list")
GOOD: dict[str, Any] = {
    "filter": "k = 1",
    "values": {"v": "x"},
    "data": [{"k": 2, "v": "b", "p": 1}],
    "source": [{"k": 1, "v": "b", "p": 1}],
    "on": ["k", "p"],
    "identifier": "d.n",
    "new_identifier": "d.m",
    "schema": {"a": "INT"},
    "next_snapshot_id": 1,
    "keys": [{"k": 1, "p": 1}],
    "properties": {},
    "start": 1,
    "end": 1,
}
HELD: dict[str, Callable[[Catalog, Table], Any]] = {
    "Catalog": lambda catalog, table: catalog,
    "Table": lambda catalog, table: table,
    "TableTags": lambda catalog, table: table.tags,
    "Branches": lambda catalog, table: table.branches,
    "SystemTable": lambda catalog, table: table.system("files"),
    "TableSession": lambda catalog, table: table.writer("loader"),
    "Merge": lambda catalog, table: table.merge(GOOD["source"], ["k", "p"]),
}
LEFT_OUT = {("Table", "stream")}
"""A stream waits for commits; its arguments are looked at before."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    columns = {"k": "BIGINT", "v": "STRING", "p": "INT"}
    table = Catalog(folder).create_table(
        "d.t", schema=columns, primary_keys=["k", "p"], partition_keys=["p"], options={"bucket": "1"}
    )
    table.append([{"k": 1, "v": "a", "p": 1}])
    return folder


def methods(held: Any) -> Iterator[str]:
    """Names of the public methods of a class."""
    for name in dir(held):
        member = inspect.getattr_static(held, name)
        if not name.startswith("_") and inspect.isfunction(member):
            yield name


def calls(method: Callable[..., Any], odd: Any) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Calls with one odd argument each, the others as they should be."""
    parameters = list(inspect.signature(method).parameters.values())
    for odd_one in parameters:
        given: list[Any] = []
        named: dict[str, Any] = {}
        for each in parameters:
            value = odd if each is odd_one else GOOD.get(each.name, "x")
            if each.kind is each.VAR_POSITIONAL:
                given += [odd] if each is odd_one else []
            elif each is odd_one or each.default is each.empty:
                named[each.name] = value
        if odd_one.kind is odd_one.VAR_POSITIONAL and named:
            given, named = [*named.values(), *given], {}
        yield odd_one.name, given, named


def refusals(held: str, names: list[str], template: Path, folder: Path) -> list[str]:
    """What is wrong with how calls with these odd arguments end."""
    wrong = []

    def opened() -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(template, folder)
        catalog = Catalog(folder)
        return HELD[held](catalog, catalog.table("d.t"))

    made = opened()
    for name in methods(type(made)):
        if (held, name) in LEFT_OUT:
            continue
        for odd in names:
            for argument, given, named in calls(getattr(made, name), ODD[odd]):
                try:
                    getattr(made, name)(*given, **named)
                    made = opened()
                except StorageError as error:
                    text = str(error).replace("\n  ", "")
                    if not text.isprintable():
                        wrong.append(f"{held}.{name}({argument}: {odd}) says {text!a}")
                except Exception as error:  # noqa: BLE001 - what is raw is what is looked for
                    wrong.append(f"{held}.{name}({argument}: {odd}) raises {type(error).__name__}: {error}")
    if folder.parent.joinpath("x").exists() or folder.joinpath("x").exists():
        wrong.append("a file was put elsewhere")
    return wrong


@pytest.mark.parametrize("held", HELD)
def test_odd_arguments_are_refused(held: str, template: Path, tmp_path: Path) -> None:
    assert refusals(held, list(QUICK), template, tmp_path / "w" / "lake") == []


@pytest.mark.slow
@pytest.mark.parametrize("held", HELD)
def test_all_odd_arguments_are_refused(held: str, template: Path, tmp_path: Path) -> None:
    assert refusals(held, [name for name in ODD if name not in QUICK], template, tmp_path / "w" / "lake") == []


class Failing:
    """Fails by itself, whatever it is given."""

    def call(self, name: str, size: int = 0, *more: dict[str, int]) -> None:
        raise KeyError("ours")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((None,), "name is str, not None"),
        (("\ud800",), "name has a null or half a character"),
        (("x", "5"), "size is int, not '5'"),
        (("x", 10**9000), "size is a number of thousands of digits"),
        (("x", 1, {"a": "b"}), "more is dict"),
        (("x", 1, {"a": 1}), None),
        (("x", True), None),
    ],
)
def test_a_fault_of_ours_stays_one(arguments: tuple[Any, ...], fault: str | None) -> None:
    made = answering_callers(type("Made", (), {"call": Failing.call}))()
    if fault is None:
        with pytest.raises(KeyError, match="ours"):
            made.call(*arguments)
        return
    with pytest.raises(InvalidRequestError, match="call: ") as caught:
        made.call(*arguments)
    assert fault in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_call_that_python_refuses_stays_so(template: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        Catalog(template).table("d.t").scan(colums=["k"])  # type: ignore[call-arg]
