"""Which files have the changes of a snapshot, for each kind of table and commit."""

from __future__ import annotations

import pytest

from freshet.storage.changes.change_source import (
    ChangeRules,
    ChangeSource,
    changelog_source,
    check_has_changelog,
    delta_source,
)
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.schema_alteration import emitted_levels
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.options.core import CoreOptions

NONE, INPUT, LOOKUP, FULL = ChangelogProducer
NOTHING, DELTA, CHANGELOG, REPLACED = ChangeSource
APPEND, COMPACT, OVERWRITE, ANALYZE = CommitKind


def snapshot(kind: CommitKind, *, changelog: bool = False) -> Snapshot:
    return Snapshot(1, 0, "base", "delta", "u", 1, kind, 0, 0, 0, changelog_manifest_list="log" if changelog else None)


@pytest.mark.parametrize(
    ("keyed", "producer", "overwrites", "kind", "changelog", "expected"),
    [
        (False, NONE, False, APPEND, False, DELTA),
        (False, NONE, False, COMPACT, False, NOTHING),
        (False, NONE, False, OVERWRITE, False, NOTHING),
        (False, NONE, True, OVERWRITE, False, DELTA),
        (False, NONE, True, COMPACT, False, NOTHING),
        (False, NONE, False, ANALYZE, False, NOTHING),
        (True, NONE, False, APPEND, False, DELTA),
        (True, NONE, False, OVERWRITE, False, NOTHING),
        (True, NONE, True, OVERWRITE, False, REPLACED),
        (True, INPUT, False, APPEND, True, CHANGELOG),
        (True, INPUT, False, APPEND, False, NOTHING),
        (True, INPUT, False, COMPACT, False, NOTHING),
        (True, INPUT, True, OVERWRITE, True, REPLACED),
        (True, LOOKUP, False, APPEND, False, NOTHING),
        (True, LOOKUP, False, COMPACT, True, CHANGELOG),
        (True, LOOKUP, False, OVERWRITE, True, CHANGELOG),
        (True, LOOKUP, False, OVERWRITE, False, NOTHING),
        (True, FULL, False, COMPACT, True, CHANGELOG),
        (True, FULL, False, COMPACT, False, NOTHING),
    ],
)
def test_source(
    keyed: bool,
    producer: ChangelogProducer,
    overwrites: bool,
    kind: CommitKind,
    changelog: bool,
    expected: ChangeSource,
) -> None:
    rules = ChangeRules(keyed, producer, overwrites)
    assert rules.source(snapshot(kind, changelog=changelog)) is expected


def test_sources_that_were_named() -> None:
    assert [delta_source(snapshot(kind, changelog=True)) for kind in CommitKind] == [DELTA, NOTHING, NOTHING, NOTHING]
    found = [changelog_source(snapshot(kind, changelog=True)) for kind in CommitKind]
    assert found == [CHANGELOG, CHANGELOG, NOTHING, CHANGELOG]
    assert changelog_source(snapshot(APPEND)) is NOTHING


def test_rules_of_options() -> None:
    keyed = CoreOptions.parse({"streaming-read-overwrite": "true", "changelog-producer": "input"}, has_primary_key=True)
    assert ChangeRules.of(keyed) == ChangeRules(True, INPUT, True)
    other = CoreOptions.parse({"streaming-read-append-overwrite": "true"}, has_primary_key=True)
    assert ChangeRules.of(other) == ChangeRules(True, NONE, False)
    appended = CoreOptions.parse({"streaming-read-append-overwrite": "true"}, has_primary_key=False)
    assert ChangeRules.of(appended) == ChangeRules(False, NONE, True)


def test_a_keyed_table_without_a_producer_is_refused_with_the_remedy() -> None:
    check_has_changelog(ChangeRules(False, NONE), "a.b", "x")
    check_has_changelog(ChangeRules(True, LOOKUP), "a.b", "x")
    with pytest.raises(
        InvalidRequestError, match=r"changelog-producer=none.* Set changelog-producer.* or call x"
    ) as bad:
        check_has_changelog(ChangeRules(True, NONE), "a.b", "call x")
    assert (bad.value.option, bad.value.table) == ("changelog-producer", "a.b")


@pytest.mark.parametrize(
    ("producer", "levels"),
    [("none", [0, 1, 2, 5, 6]), ("input", [0, 1, 2, 5, 6]), ("lookup", [1, 2, 5, 6]), ("full-compaction", [5])],
)
def test_levels_with_which_a_stream_begins(producer: str, levels: list[int]) -> None:
    is_emitted = emitted_levels(CoreOptions.parse({"changelog-producer": producer}, has_primary_key=True))
    assert [level for level in (0, 1, 2, 5, 6) if is_emitted(level)] == levels
