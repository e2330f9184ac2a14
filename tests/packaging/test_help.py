"""`help()` reads like a page: every public name and method says what it is, the large classes name all they have."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import freshet

CLASSES = {name: getattr(freshet, name) for name in freshet.__all__ if inspect.isclass(getattr(freshet, name))}
WITH_OVERVIEW = ("Table", "Catalog", "TableScan", "TableTags")


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that are Freshet's; the fields of values are told by their class."""
    for name in dir(kind):
        given = inspect.getattr_static(kind, name)
        if name.startswith("_") or not (inspect.isroutine(given) or isinstance(given, property)):
            continue
        where = next(base for base in kind.__mro__ if name in vars(base))
        if where.__module__.startswith("freshet."):
            yield name, getattr(kind, name)


@pytest.mark.parametrize("name", [name for name in freshet.__all__ if not name.endswith("COLUMN") and name[0] != "_"])
def test_every_public_name_and_method_says_what_it_is(name: str) -> None:
    what = getattr(freshet, name)
    assert what.__doc__, name
    silent = [member for member, value in own_members(CLASSES.get(name, type)) if not value.__doc__]
    assert not silent, f"{name}: {silent}"


@pytest.mark.parametrize("name", WITH_OVERVIEW)
def test_the_page_of_a_class_begins_with_an_example_and_names_its_verbs(name: str) -> None:
    text = inspect.getdoc(CLASSES[name]) or ""
    first, _, rest = text.partition("\n\n")
    assert first.endswith(".") and rest.startswith("    "), "a summary, then an example"
    if name in ("Table", "Catalog"):
        named = set(re.findall(r"`(\w+)`", rest))
        public = {member for member, _ in own_members(CLASSES[name])}
        assert public <= named, f"not named: {public - named}"


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - {"CompactionConfig"}))  # pydantic's
def test_help_shows_nothing_private(name: str) -> None:
    """But the modules of the class and of its bases, which pydoc says by itself."""
    page = pydoc.plain(pydoc.render_doc(CLASSES[name]))
    methods = re.findall(r"^ \|  (_\w+)\(", page, re.MULTILINE)
    assert not [method for method in methods if not (method.startswith("__") and method.endswith("__"))]
    assert " object at 0x" not in page and "<factory>" not in page
    modules = set(re.findall(r"freshet\.\w+(?:\.\w+)+", page))
    bases = {f"{base.__module__}.{base.__qualname__}" for base in CLASSES[name].__mro__}
    forced = bases | {base.__module__ for base in CLASSES[name].__mro__}
    assert modules <= forced, modules - forced


@pytest.mark.parametrize(
    ("words", "code", "shown", "error"),
    [
        ((), 0, "Usage:", ""),
        (("repair",), 2, "", "Choose from: lost-commit, hash-index"),
        (("nothing",), 2, "", "No such command 'nothing'"),
    ],
)
def test_calls_without_what_they_need(words: tuple[str, ...], code: int, shown: str, error: str) -> None:
    done = subprocess.run([sys.executable, "-m", "freshet", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert shown in done.stdout
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == bool(error), "one message"
