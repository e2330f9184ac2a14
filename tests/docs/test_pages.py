"""Every snippet and command of README and site runs, and prints what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from freshet import Table
from freshet.jobs.demo.shop import CUSTOMERS_TOPIC, ORDERS_TOPIC
from tests.docs import reference
from tests.docs.drawing import DrawingError, draw
from tests.docs.page import ROOT, Page, is_run, read_page
from tests.docs.page_run import PageError, run_page
from tests.docs.pictures import pictures
from tests.docs.site_hook import llms_text
from tests.kit.postgres_programs import SYSTEM
from tests.kit.postgres_source import new_source

PAGES = [read_page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
TABLE_NAMES_MAX = 55
TABLE_SURFACE = {"writer", "scan", "changelog", "stream", "compact", "expire_snapshots", "snapshots", "describe"}
"""What programs were promised first; the other names are held by the page of the Python API."""
NEEDS = {
    "spark": [pytest.mark.spark, pytest.mark.slow],
    "kafka": [pytest.mark.kafka, pytest.mark.slow],
    "postgres": [pytest.mark.slow],
}


def _pages() -> Iterator[Any]:
    for page in PAGES:
        if any(map(is_run, page.blocks)):
            yield pytest.param(page, id=page.name, marks=[mark for need in sorted(page.needs) for mark in NEEDS[need]])


@pytest.mark.few(2)
@pytest.mark.parametrize("page", list(_pages()))
def test_a_page_does_what_it_says(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    environment = {}
    if "spark" in page.needs:
        request.getfixturevalue("spark")  # its JVM must not start in a folder that goes with this test
    if "kafka" in page.needs:
        broker = request.getfixturevalue("kafka_broker")
        for topic in broker.topics() & {ORDERS_TOPIC, CUSTOMERS_TOPIC}:
            broker.delete_topic(topic)  # of the page before, which began with `freshet demo broker` too
        environment["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", environment["KAFKA_BOOTSTRAP_SERVERS"])
    with ExitStack() as stack:
        if "postgres" in page.needs:
            server = request.getfixturevalue("postgres_servers")[SYSTEM]
            source = stack.enter_context(new_source(server, "shop"))
            environment |= {"SHOP_DSN": source.dsn, "PGPASSWORD": source.password}
            for name in ("SHOP_DSN", "PGPASSWORD"):
                monkeypatch.setenv(name, environment[name])
        monkeypatch.chdir(tmp_path)
        assert run_page(page, tmp_path, environment)


def test_the_readme_and_the_first_tutorial_are_run() -> None:
    run = {page.name for page in PAGES if any(map(is_run, page.blocks))}
    assert {"README.md", "docs/tutorial/first-table.md"} <= run


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```\n", "prints:\n1\n\nand the page says:\n2"),
        ("```python\nprint(1)\n```\n", "prints:\n1"),
        ("```console\n$ rm x\n```\n", "rm is not run by tests"),
        ("```console\n$ freshet tables warehouse/of/nobody --color\n```\n", "ended with 2"),
    ],
)
def test_a_page_that_says_something_else_fails(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr("tests.docs.page.ROOT", tmp_path)
    with pytest.raises(PageError) as caught:
        run_page(read_page(path), tmp_path, {})
    assert message in str(caught.value)


@pytest.mark.parametrize("path", pictures(), ids=lambda path: path.name)
def test_pictures_are_those_of_their_descriptions(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pictures()[path], "run `make reference` and look at what changed"


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"boxes": {"a": {"at": [0, 0], "size": [60, 30], "lines": ["wider than its box"]}}}, "has 44"),
        ({"boxes": {"a": {"at": [0, 0], "size": [60, 30], "kind": "loud"}}}, "of no kind"),
        ({"arrows": [{"from": "a.left", "to": "b.left"}]}, "a.left is no side of a box"),
        ({"notes": [{"at": [80, 10], "lines": ["beyond the edge"]}]}, "of 100"),
    ],
)
def test_a_picture_that_would_look_bad_is_refused(description: dict[str, Any], message: str) -> None:
    with pytest.raises(DrawingError) as caught:
        draw({"title": "a picture", "size": [100, 50], **description}, "bad.yaml")
    assert message in str(caught.value)


def test_llms_txt_lists_pages_with_their_first_sentence() -> None:
    text = "# Buckets\n\nAll rows of a *key* are in\n[one bucket](x.md). And so on.\n"
    listed = llms_text("Freshet", [("", [("Start", "index.md", "# Start\n")]), ("Tables", [("Buckets", "b.md", text)])])
    assert listed == (
        "# Freshet\n\n- [Start](index.md)\n\n## Tables\n\n- [Buckets](b.md): All rows of a key are in one bucket.\n"
    )


@pytest.mark.parametrize("name", reference.PAGES)
def test_reference_pages_are_those_of_the_code(name: str) -> None:
    page = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert page == reference.PAGES[name](), "run `make reference` and look at what changed"


def test_nothing_is_installed_by_name() -> None:
    for page in PAGES:
        for command in re.findall(r"pip install ([^`]+)", page.path.read_text(encoding="utf-8")):
            assert not re.match(r"'?freshet(-lake)?\b(?!-[0-9])", command), f"{page.name}: {command}"


def test_the_names_of_a_table_are_listed_and_few() -> None:
    """What an engine needs to drive a table is a name of `Table.engine`, not of `Table`."""
    names = {name for name in dir(Table) if not name.startswith("_")}
    page = (reference.FOLDER / "python-api.md").read_text(encoding="utf-8")
    section = page.partition("\n## Table\n")[2].partition("\n## ")[0]
    methods, _, properties = section.partition("\n### Properties of Table\n")
    listed = re.findall(r"^### Table\.(\w+)", methods, re.MULTILINE) + re.findall(
        r"^\| `(\w+)", properties, re.MULTILINE
    )
    assert set(listed) == names
    assert len(names) <= TABLE_NAMES_MAX
    assert names >= TABLE_SURFACE
