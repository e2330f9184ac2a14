"""Options that say what is told, changed while readers of the log are open: they go on with what is right, or stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import InvalidRequestError, SetOption
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import Stream, folded, held, make_logged, write


@pytest.fixture(autouse=True)
def altered_by_paimon(monkeypatch: pytest.MonkeyPatch) -> None:
    """`alter` changes the producer whatever its changelog has told, as Apache Paimon does."""
    monkeypatch.setattr("freshet.storage.metadata.schema_alteration.check_emitted", lambda *_: None)


def _with(table: Table, key: str, value: str) -> Table:
    return table.alter(SetOption(key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [("changelog-producer", "none"), ("changelog-producer", "full-compaction"), ("log.changelog-mode", "upsert")],
)
def test_rows_without_those_they_replace(table: Table, isolation: str, key: str, value: str) -> None:
    """A reader that tells both gave them as inserts, and what was deleted meanwhile never left."""
    write(table, "+I 1 a | +I 2 b")
    stream = Stream(table, isolation)
    stream()
    write(_with(table, key, value), "+I 1 c | -D 2 b")
    with pytest.raises(InvalidRequestError, match=r"log of table .* leave out the rows before updates.*latest-full"):
        stream()
    table = _with(table, key, "lookup" if value != "upsert" else "all")
    write(table, "+I 1 d")
    with pytest.raises(InvalidRequestError, match="leave out the rows before updates"):
        Stream(table, isolation, from_snapshot=1)()
    assert folded(Stream(table, isolation)()) == held(table) == {1: "d"}


def test_commits_without_the_log_while_there_was_no_producer(table: Table, isolation: str) -> None:
    """They were passed over in silence."""
    write(table, "+I 1 a")
    stream = Stream(table, isolation)
    stream()
    write(_with(table, "changelog-producer", "none").without_log(), "+I 1 b", user="loader")
    with pytest.raises(InvalidRequestError, match=r"has a gap: snapshot 3 was committed"):
        stream()


@pytest.mark.parametrize("producer", ["none", "input"])
def test_lookups_tell_anew_what_waits_on_level_0(log: FakeLog, tmp_path: Path, producer: str) -> None:
    """Its deletes were swallowed: for the lookup the rows had never been there."""
    table = make_logged(tmp_path, changelog_producer=producer)
    write(table, "+I 1 a | +I 2 b")
    stream = Stream(table)
    stream()
    later = _with(table, "changelog-producer", "lookup")
    write(later, "-D 2 b")
    message = rf"was changed from {producer} to lookup before snapshot 2, .*told again.*freshet compact"
    with pytest.raises(InvalidRequestError, match=message):
        stream()
    state = stream.stream.state
    with pytest.raises(InvalidRequestError, match=message):
        list(later.stream(isolation="committed", log_state=state, max_wait_s=0))
    assert folded(Stream(later)()) == held(later) == {1: "a"}


@pytest.mark.parametrize("producer", ["none", "input"])
def test_lookups_after_a_full_compaction_go_on(log: FakeLog, tmp_path: Path, producer: str) -> None:
    table = make_logged(tmp_path, changelog_producer=producer)
    write(table, "+I 1 a | +I 2 b")
    table.without_log().compact(full=True)
    stream = Stream(table)
    seen = folded(stream())
    write(_with(table, "changelog-producer", "lookup"), "+I 1 c | -D 2 b")
    assert stream() == "-U 1 a | +U 1 c | -D 2 b"
    assert seen == {1: "a", 2: "b"}


def test_an_overwrite_after_lookup_gave_way_to_input(log: FakeLog, tmp_path: Path) -> None:
    """A reader of lookup knew of no level 0: neither the rows that went there nor those that came were told."""
    table = make_logged(tmp_path, changelog_producer="lookup")
    write(table, "+I 1 a | +I 2 b")
    table.without_log().compact(full=True)
    stream = Stream(table)
    seen = folded(stream())
    later = _with(table, "changelog-producer", "input")
    write(later, "+I 3 c")
    later.without_log().overwrite([{"k": 4, "v": "d"}], dynamic=False)
    assert folded(stream(), seen) == held(later) == {4: "d"}


def test_an_open_batch_that_does_not_go_on(log: FakeLog, tmp_path: Path) -> None:
    """A speculative reader stops before it shows anything of it."""
    table = make_logged(tmp_path, changelog_producer="input")
    write(table, "+I 1 a | +I 2 b")
    stream = Stream(table, "speculative")
    stream()
    write(_with(table, "changelog-producer", "lookup"), "-D 2 b")
    with pytest.raises(InvalidRequestError, match="changed from input to lookup"):
        stream()


def test_a_reader_that_begins_after_the_change_goes_on(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    """With the rows of the last snapshot before it, of which it takes what lookups tell later for untold."""
    table = make_logged(tmp_path, changelog_producer="input")
    write(table, "+I 1 a | +I 2 b")
    later = _with(table, "changelog-producer", "lookup")
    stream = later.stream(isolation=isolation, max_wait_s=0.0)
    write(later, "-D 2 b")
    told = [row for batch in stream for row in batch.to_pylist()]
    assert [(row["_ROW_KIND"], row["k"], row["v"]) for row in told] == [("+I", 1, "a")]
