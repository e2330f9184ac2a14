"""Bitmaps and sketches cross between Freshet's codecs and Paimon's classes, both ways."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from pyroaring import BitMap

from freshet.storage.codec import roaring_bitmaps as bitmaps
from freshet.storage.codec import sketches
from tests.kit.aggregate_bytes import AggregateBytes
from tests.kit.hypothesis_profile import examples

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def java() -> Iterator[AggregateBytes]:
    with AggregateBytes.start() as process:
        yield process


def _spread(count: int, top: int, seed: int) -> set[int]:
    source = random.Random(seed)
    return {source.randrange(top) for _ in range(count)}


SETS32 = {
    "empty": set[int](),
    "one": {0},
    "extremes": {0, 1 << 31, (1 << 32) - 1},
    "sparse": _spread(300, 1 << 32, 1),
    "dense": _spread(6000, 1 << 16, 2),
    "run": set(range(100, 20_000)),
    "mixed": set(range(70_000, 150_000)) | _spread(5000, 1 << 18, 3),
}
SETS64 = SETS32 | {
    "high": {1 << 63, (1 << 64) - 1, 1 << 32},
    "node 4": {value << 16 for value in range(3)},
    "node 16": {value << 24 for value in range(16)},
    "node 48": {value << 40 for value in range(7, 55)},
    "node 256": {value << 56 for value in range(256)} | {5 << 16},
    "prefixes": {0x0102_0304_0000_0000, 0x0102_0304_0001_0000, 0x0102_0305_0000_0000, 0x7F00_0000_0000_0000},
    "wide": _spread(2000, 1 << 64, 4),
    "deep": {(value << 20) * 977 for value in range(500)},
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SETS32)
def test_bitmaps_of_32_bits(java: AggregateBytes, name: str) -> None:
    numbers = SETS32[name]
    theirs = java.make("rbm32", *sorted(numbers))
    assert set(bitmaps.read_bitmap32(theirs)) == numbers
    ours = bitmaps.write_bitmap32(BitMap(numbers))
    assert _numbers(java.read("rbm32", ours)) == numbers
    assert ours == theirs
    other = java.make("rbm32", *range(50, 150))
    assert _numbers(java.read("rbm32", java.unite("rbm32", ours, other))) == numbers | set(range(50, 150))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SETS64)
def test_bitmaps_of_64_bits(java: AggregateBytes, name: str) -> None:
    numbers = SETS64[name]
    theirs = java.make("rbm64", *sorted(numbers))
    assert _read64(theirs) == numbers
    ours = bitmaps.Bitmap64.of(np.array(sorted(numbers), np.uint64)).write()
    assert _numbers(java.read("rbm64", ours)) == numbers
    # Java goes on with what it has read: new containers are put into every kind of node.
    for grown in SETS64.values():
        other = java.make("rbm64", *sorted(grown))
        united = java.unite("rbm64", ours, other)
        assert _read64(united) == numbers | grown
        mine = bitmaps.Bitmap64.read(ours)
        mine |= bitmaps.Bitmap64.read(other)
        assert _numbers(java.read("rbm64", mine.write())) == numbers | grown
        assert len(mine.write()) <= len(united)


def test_bitmaps_made_in_any_order(java: AggregateBytes) -> None:
    numbers = list(_spread(3000, 1 << 40, 5))
    assert _read64(java.make("rbm64", *numbers)) == set(numbers)


HLLS = [
    (lg_k, kind, updatable, first, count)
    for lg_k in (4, 8, 12)
    for kind in ("HLL_4", "HLL_6", "HLL_8")
    for updatable in ("false", "true")
    for first, count in ((0, 0), (0, 1), (0, 5), (100, 60), (1000, 5000), (0, 100_000))
]


def test_hll_sketches_read_as_they_were_made(java: AggregateBytes) -> None:
    for arguments in HLLS:
        theirs = java.make("hll", *arguments)
        again = sketches.write_hll(sketches.read_hll(theirs))
        assert java.read("hll", again) == java.read("hll", theirs), arguments


def test_hll_unions(java: AggregateBytes) -> None:
    made = [java.make("hll", *arguments) for arguments in HLLS]
    source = random.Random(6)
    for _ in range(examples(400)):
        first, second = source.choice(made), source.choice(made)
        theirs = java.read("hll", java.unite("hll", first, second))
        ours = java.read("hll", sketches.write_hll(sketches.unite_hll(*map(sketches.read_hll, (first, second)))))
        _assert_same_sketch(ours, theirs)


@pytest.mark.slow
def test_hll_unions_of_unions(java: AggregateBytes) -> None:
    made = [java.make("hll", 12, "HLL_4", "false", first, 700) for first in range(0, 70_000, 650)]
    theirs, ours = made[0], sketches.read_hll(made[0])
    for data in made[1:]:
        theirs = java.unite("hll", theirs, data)
        ours = sketches.unite_hll(ours, sketches.read_hll(data))
        _assert_same_sketch(java.read("hll", sketches.write_hll(ours)), java.read("hll", theirs))


THETAS = [
    (lg_k, updatable, first, count)
    for lg_k in (5, 12, 13)
    for updatable in ("false", "true")
    for first, count in ((0, 0), (0, 1), (0, 20), (10, 3000), (0, 100_000))
]


def test_theta_sketches_read_as_they_were_made(java: AggregateBytes) -> None:
    for arguments in THETAS:
        theirs = java.make("theta", *arguments)
        again = sketches.write_theta(sketches.read_theta(theirs))
        assert sorted(java.read("theta", again).split()) == sorted(java.read("theta", theirs).split()), arguments


def test_theta_unions_have_the_same_bytes(java: AggregateBytes) -> None:
    made = [java.make("theta", *arguments) for arguments in THETAS]
    pairs = list(itertools.product(made, repeat=2))
    for first, second in random.Random(8).sample(pairs, examples(len(pairs))):
        ours = sketches.write_theta(sketches.unite_theta(*map(sketches.read_theta, (first, second))))
        assert java.read("theta", ours) == java.read("theta", java.unite("theta", first, second))
        assert ours == java.unite("theta", first, second)


def _read64(data: bytes) -> set[int]:
    return set(bitmaps.Bitmap64.read(data).numbers().tolist())


def _numbers(text: str) -> set[int]:
    return {int(number) for number in text.split()}


def _assert_same_sketch(ours: str, theirs: str) -> None:
    assert ours == theirs
