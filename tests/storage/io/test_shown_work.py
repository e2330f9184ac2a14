"""Work that shows that it goes on: who is asked to show it, how far it is, and that nothing is shown unasked."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import freshet
from freshet import Catalog, Table
from freshet.storage.io import shown_work as bars
from freshet.storage.io.shown_work import advance_work, at_work, counted, show_work
from tests.kit.at_once import at_once

Steps = list[tuple[str, float, float]]


@pytest.fixture
def steps() -> Iterator[Steps]:
    """What a shower is told."""
    seen: Steps = []

    @contextmanager
    def shower(what: str) -> Iterator[Callable[[float, float], None]]:
        seen.append((what, 0, 0))
        yield lambda done, planned: seen.append((what, done, planned))
        seen.append((what, -1, -1))

    put_back = show_work(shower)
    yield seen
    put_back()


def make(folder: Path, *, keyed: bool = True) -> Table:
    table = Catalog(folder).create_table(
        "shop.t",
        schema={"dt": "STRING NOT NULL", "id": "BIGINT NOT NULL", "n": "INT"},
        primary_keys=["dt", "id"] if keyed else [],
        partition_keys=["dt"],
        options={"bucket": 1 if keyed else -1, "write-only": "true"},
    )
    for turn in range(2):
        table.append([{"dt": day, "id": n, "n": turn} for day in "abc" for n in range(4)])
    return table


@pytest.mark.parametrize("keyed", [True, False])
def test_each_verb_that_may_take_long_says_how_far_it_is(tmp_path: Path, steps: Steps, keyed: bool) -> None:
    table = make(tmp_path, keyed=keyed)
    verbs: dict[str, Callable[[], object]] = {
        "deleting rows of shop.t": lambda: table.delete("id = 1"),
        "updating rows of shop.t": lambda: table.update({"n": 7}, "id = 2"),
        "compacting shop.t": lambda: table.with_options({"write-only": "false"}).compact(),
        "expiring snapshots of shop.t": lambda: table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0),
    }
    for what, verb in verbs.items():
        steps.clear()
        verb()
        assert {name for name, *_ in steps} == {what}
        assert steps[0] == (what, 0, 0) and steps[-1] == (what, -1, -1)
        moves = [(done, planned) for _, done, planned in steps[1:-1]]
        assert moves and moves[-1][0] == moves[-1][1] > 0, what
        assert [done for done, _ in moves] == sorted(done for done, _ in moves)
    steps.clear()
    table.append([{"dt": "a", "id": 1, "n": 1}])
    table.scan().to_arrow()
    assert steps == [], "what is short shows nothing"


def test_a_merge_and_a_rollback_and_a_callback_of_the_caller(tmp_path: Path, steps: Steps) -> None:
    table = make(tmp_path)
    table.merge([{"dt": "a", "id": 1, "n": 9}], on=["dt", "id"]).when_matched_update_all().execute()
    table.compact()
    table.expire_snapshots(retain_max=50)
    steps.clear()
    table.rollback(1)
    assert {name for name, *_ in steps} == {"rolling shop.t back"}
    steps.clear()
    told: list[int] = []
    table.with_options({"write-only": "false"}).compact(progress=lambda done: told.append(done.bytes_done))
    assert told and len(steps) == 2, "who gives a callback is told, and nobody else"


def test_work_within_work_is_one(steps: Steps) -> None:
    with at_work("outer"), at_work("inner") as advance:
        advance(1, 2)
        advance_work(2, 2)
    assert [name for name, *_ in steps] == ["outer"] * 4
    with at_work("calls"):
        at_once(counted([threading.get_ident] * 5))
    assert [done for name, done, _ in steps if name == "calls"] == [0, 1, 2, 3, 4, 5, -1]
    advance_work(1, 2)
    assert counted([len]) == [len]


def test_work_that_fails_ends_its_bar(steps: Steps) -> None:
    with pytest.raises(RuntimeError), at_work("work"):
        raise RuntimeError
    assert steps[0][0] == "work"
    advance_work(1, 2)
    assert len(steps) == 1


class Notebook:
    """IPython as a kernel has it, as far as it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: object) -> None:
        self.shown: list[str] = []
        self.texts: list[str] = []
        module, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        module.get_ipython = lambda: types.SimpleNamespace(kernel=kernel)  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", module)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, what: object, *, display_id: bool) -> Notebook:
        assert display_id
        self.update(what)
        return self

    def update(self, what: object) -> None:
        self.shown.append(what._repr_html_())  # type: ignore[attr-defined]
        self.texts.append(repr(what))


def test_a_notebook_shows_bars_of_itself_and_takes_them_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch, kernel=object())
    table = make(tmp_path)
    table.delete("id = 1")
    assert notebook.shown == [], "it was short"
    monkeypatch.setattr(bars, "WAIT_S", 0.0)
    monkeypatch.setattr(bars, "EVERY_S", 0.0)
    table.delete("id = 2")
    assert notebook.shown[-1] == "" and len(notebook.shown) > 1
    assert '<progress value="1.000" max="1"></progress> 100 %' in notebook.shown[-2]
    assert notebook.texts[-2] == "deleting rows of shop.t: 100 %"
    with bars.notebook_bar("a <b>") as advance:
        advance(3, 2)
        advance(1, 0)
    assert "a &lt;b&gt;" in notebook.shown[-2] and "100 %" in notebook.shown[-2]
    count = len(notebook.shown)
    with freshet.progress(False):
        table.delete("id = 3")
    assert len(notebook.shown) == count
    with freshet.progress():
        table.delete("id = 0")
    assert len(notebook.shown) > count


def test_ipython_in_a_terminal_and_scripts_show_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(monkeypatch, kernel=None)
    monkeypatch.setattr(bars, "WAIT_S", 0.0)
    table = make(tmp_path)
    table.delete("id = 1")
    with freshet.progress():  # standard error is no terminal
        table.delete("id = 2")
    assert (notebook.shown, tuple(capfd.readouterr())) == ([], ("", ""))
    monkeypatch.setenv("FORCE_COLOR", "1")
    with freshet.progress():
        table.delete("id = 3")
    out, err = capfd.readouterr()
    assert out == "" and "deleting rows of shop.t" in err
    table.delete("id = 0")
    assert tuple(capfd.readouterr()) == ("", "")
