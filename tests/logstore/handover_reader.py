"""Reads a table in pieces to the end of what is there, and tells what it counted: python -m … WAREHOUSE ISOLATION KEYS

It says `begun` when it has its first position, and waits for a line. Memory is the most that the process had beyond
what it had before it read, in bytes.
"""

from __future__ import annotations

import json
import resource
import sys

import numpy as np

from freshet import Catalog
from freshet.storage.table import StreamLimit

WEIGHTS = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


def main() -> None:
    warehouse, isolation, key_count = sys.argv[1:]
    stream = Catalog(warehouse).table("db.t").split_stream(isolation=isolation)
    position = stream.first()
    print("begun", flush=True)
    sys.stdin.readline()
    until = stream.bound()
    limit = StreamLimit(files=2, offsets=200)
    told = dict.fromkeys(WEIGHTS, 0)
    seen = np.zeros(int(key_count), np.int16)
    total = batches = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while (end := stream.advance(position, limit, until)) != position:
        for group in stream.groups(position, end):
            for batch in stream.read_group(group):
                kinds = np.asarray(batch.column("_ROW_KIND").to_numpy(zero_copy_only=False), dtype=object)
                keys, values = batch.column("k").to_numpy(), batch.column("v").to_numpy()
                for kind, weight in WEIGHTS.items():
                    chosen = kinds == kind
                    told[kind] += int(chosen.sum())
                    np.add.at(seen, keys[chosen], weight)
                    total += weight * int(values[chosen].sum())
        position = stream.position(json.loads(json.dumps(end.to_document())))
        batches += 1
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    once, other = int((seen == 1).sum()), int(((seen != 1) & (seen != 0)).sum())
    counts = {"told": told, "total": total, "once": once, "other": other, "batches": batches, "memory": memory}
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
