"""The cost of a commit is that of its changes: a table of 10 000 files commits like one of 160."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from types import FrameType

import pytest

from freshet.storage.cleaning.expire import expire_later
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.commit.committer import Committer
from freshet.storage.metadata.table_store import open_table_store
from tests.kit.hand_made import KEY, make_table, message, new_file
from tests.kit.sim_env import SimDisk

BUCKETS = 16
COMMITS = 60
LOCATION = "/warehouse/db.db/t"


@dataclass(frozen=True, slots=True)
class Cost:
    """Per commit of a long-lived process, a new committer each time as in a stream; the first commits are left out."""

    reads: float
    read_bytes: float
    mutations: float
    median_calls: float
    """Of functions, Python's and its libraries': processor time by something that no other process changes."""


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called in this thread meanwhile."""
    count = 0

    def counted(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def cost_of_commits(file_count: int) -> Cost:
    disk = SimDisk()
    env = disk.boot()
    options = {"bucket": str(BUCKETS), "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "10"}
    store = make_table(env, options=options)
    template = new_file(store, "template", level=5)
    messages = []
    for bucket in range(BUCKETS):
        keys = [encode_row([1000 + number], [KEY.type]) for number in range(file_count // BUCKETS)]
        files = [
            replace(template, file_name=f"{bucket}-{number}.parquet", min_key=key, max_key=key)
            for number, key in enumerate(keys)
        ]
        messages.append(message(store, bucket=bucket, new=files))
    Committer(store, "load", after_commit=expire_later).commit(0, messages)

    store = open_table_store(env, LOCATION)
    committer = Committer(store, "u", after_commit=expire_later)
    committer.commit(0, [])
    before = {bucket: [replace(template, file_name=f"b{bucket}-0.parquet", level=4)] for bucket in range(BUCKETS)}
    committer.commit(1, [message(store, bucket=bucket, new=files) for bucket, files in before.items()])
    reads, read_bytes, mutations = env.file_io.read_count, env.file_io.read_bytes_count, env.file_io.mutation_count
    counts = []
    for number in range(2, COMMITS + 2):
        messages = []
        for bucket in range(BUCKETS):
            new = replace(template, file_name=f"a{bucket}-{number}.parquet", level=0)
            after = [replace(template, file_name=f"b{bucket}-{number}.parquet", level=4)]
            messages.append(message(store, bucket=bucket, new=[new], before=[*before[bucket], new], after=after))
            before[bucket] = after
        counts.append(calls_of(partial(Committer(store, "u", after_commit=expire_later).commit, number, messages)))
    return Cost(
        (env.file_io.read_count - reads) / COMMITS,
        (env.file_io.read_bytes_count - read_bytes) / COMMITS,
        (env.file_io.mutation_count - mutations) / COMMITS,
        median(counts),
    )


@pytest.mark.slow
def test_cost_of_a_commit_does_not_grow_with_the_table(unchecked_claims: None) -> None:
    small, large = cost_of_commits(160), cost_of_commits(10_000)
    assert large.reads <= small.reads * 1.1
    assert large.read_bytes <= small.read_bytes * 1.3
    assert large.mutations <= small.mutations * 1.1
    # All buckets change, and the ranges of keys in a bucket are looked through: 11 to 13 calls for each of its files.
    assert large.median_calls <= small.median_calls + 18 * 10_000
