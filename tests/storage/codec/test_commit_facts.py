"""Facts of commits as the text that a snapshot carries: 2 KB at most, and sums that stay right."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.commit_facts import FACTS_BYTES_MAX, FACTS_PROPERTY, facts_to_text, parse_facts
from freshet.storage.model.commit_facts import (
    BatchFacts,
    CommitFacts,
    CompactionFacts,
    CompactionReason,
    PlacedCompaction,
    together,
)
from tests.kit.hypothesis_profile import examples

COUNTS = st.integers(0, 2**40)
NAMES = st.text(min_size=1, max_size=40)
COMPACTION = st.builds(
    CompactionFacts, st.sampled_from(CompactionReason), st.integers(0, 5), st.integers(1, 5), *[COUNTS] * 7
)
FACTS = st.builds(
    CommitFacts,
    st.none() | st.tuples(COUNTS, COUNTS, COUNTS, COUNTS),
    *[COUNTS] * 8,
    tries=st.integers(1, 20),
    conflicts=st.integers(1, 9),
    conflicts_with=st.lists(NAMES, max_size=5).map(tuple),
    batch=st.none()
    | st.builds(
        BatchFacts,
        st.none() | COUNTS,
        st.dictionaries(NAMES, st.integers(1, 2**30), max_size=30),
        st.none() | st.tuples(COUNTS, COUNTS),
        st.dictionaries(NAMES, COUNTS, max_size=30),
    ),
    compactions=st.lists(st.builds(PlacedCompaction, NAMES, st.integers(0, 999), COMPACTION), max_size=80).map(tuple),
)


def sums(facts: CommitFacts) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for each in facts.compactions:
        for name in ("files_in", "bytes_in", "rows_in", "files_out", "bytes_out", "rows_out", "bucket_count"):
            found[each.facts.reason, name] += getattr(each.facts, name)
    return found


def read(text: str) -> CommitFacts:
    facts = parse_facts({FACTS_PROPERTY: text})
    assert facts is not None
    return facts


@pytest.mark.hypothesis
@given(FACTS)
@settings(max_examples=examples(60))
def test_within_the_bound_and_back(facts: CommitFacts) -> None:
    text = facts_to_text(facts)
    assert len(text.encode()) <= FACTS_BYTES_MAX
    back = read(text)
    assert (back.kinds, back.rows_written, back.duration_ms, back.tries) == (
        facts.kinds,
        facts.rows_written,
        facts.duration_ms,
        facts.tries,
    )
    if back.compactions:
        assert sums(back) == sums(facts)
    if back.batch is not None and facts.batch is not None and back.batch.dead_letters:
        assert sum(back.batch.dead_letters.values()) == sum(facts.batch.dead_letters.values())


def test_the_largest_compactions_are_told_apart() -> None:
    one = CompactionFacts(CompactionReason.SIZE_RATIO, 0, 3, 2, 100, 10, 1, 90, 9, 5)
    many = [PlacedCompaction("dt=2026-11-29", bucket, one) for bucket in range(500)]
    large = PlacedCompaction("dt=2026-11-29", 500, *together([one, one]))
    facts = CommitFacts((1, 0, 0, 0), *[1] * 8, compactions=(*many, large))
    back = read(facts_to_text(facts))
    assert back.compactions[0].bucket == 500
    assert 10 < len(back.compactions) < 60
    assert back.compactions[-1].bucket is None
    assert sums(back) == sums(facts)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 1}', '{"files": [1], "bytes": []}', "\0"])
def test_what_nobody_understands_is_as_none(text: str) -> None:
    assert parse_facts({FACTS_PROPERTY: text}) is None
    assert parse_facts(None) is None
