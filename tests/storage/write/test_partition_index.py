"""The index of a partition follows the index files of snapshots, whoever wrote them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from freshet.storage.metadata.hash_index_store import HASH_BYTES, encode_hashes
from freshet.storage.model.manifest import HASH_INDEX, IndexFileMeta
from freshet.storage.write.partition_index import SOLE_ASSIGNER, UNKNOWN, AssignerShare, PartitionIndex


class Files:
    """Index files by name."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def write(self, hashes: list[int]) -> IndexFileMeta:
        data = encode_hashes(np.array(hashes, np.int32))
        name = f"index-{len(self._data)}"
        self._data[name] = data
        return IndexFileMeta(HASH_INDEX, name, len(data), len(data) // HASH_BYTES)

    def read(self, meta: IndexFileMeta) -> bytes:
        return self._data[meta.file_name]


def test_a_key_of_a_partition_that_was_filled_again_moves_to_a_lower_bucket() -> None:
    """Bucket 0 is as it was, but for key 3, which was in bucket 1 before."""
    files, index = Files(), PartitionIndex(SOLE_ASSIGNER)
    index.sync({0: files.write([1, 2]), 1: files.write([3, 4])}, files.read)
    index.sync({0: files.write([1, 2, 3]), 1: files.write([5])}, files.read)
    assert index.find(np.array([1, 2, 3, 4, 5], np.int32)).tolist() == [0, 0, 0, UNKNOWN, 1]


@pytest.mark.parametrize("share", [SOLE_ASSIGNER, AssignerShare(1, 2)])
def test_any_history_of_files(share: AssignerShare) -> None:
    """Keys are added, in their order or another; now and then the partition is dropped, and some keys come back."""
    chance = random.Random(3)
    for _ in range(60):
        files, index, buckets = Files(), PartitionIndex(share), dict[int, list[int]]()
        metas: dict[int, IndexFileMeta] = {}
        for _ in range(12):
            if chance.random() < 0.2:
                buckets, metas = {}, {}
            for key in chance.sample(range(-20, 20), 8):
                if not any(key in keys for keys in buckets.values()):
                    bucket = chance.randrange(4)
                    buckets.setdefault(bucket, []).append(key)
                    metas.pop(bucket, None)
            for bucket, keys in buckets.items():
                if bucket not in metas:
                    if chance.random() < 0.3:
                        chance.shuffle(keys)
                    metas[bucket] = files.write(keys)
            if chance.random() < 0.6:
                index.sync(metas, files.read)
                expected = {
                    key: bucket for bucket, keys in buckets.items() for key in keys if abs(key) % 2 or not share.number
                }
                asked = [key for key in range(-20, 20) if abs(key) % 2 or not share.number]
                found = index.find(np.array(asked, np.int32)).tolist()
                assert found == [expected.get(key, UNKNOWN) for key in asked]
