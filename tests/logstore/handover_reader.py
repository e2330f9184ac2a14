"""Reads a table in pieces to the end of what is there, and prints what it counted: python -m … WAREHOUSE ISOLATION KEYS

It says `begun` when it has its first position, and waits for a line. Memory is the most that the process had beyond
what it had before it read, in bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from freshet import Catalog
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.table_engine import StreamLimit

WEIGHTS = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


def memory_of(name: str) -> int:
    """A figure of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def main() -> None:
    warehouse, isolation, key_count = sys.argv[1:]
    stream = Catalog(warehouse).table("db.t").engine.split_stream(StreamRequest(isolation=isolation))
    position = stream.first()
    print("begun", flush=True)
    sys.stdin.readline()
    until = stream.bound()
    limit = StreamLimit(files=1, offsets=50)
    by_kind = dict.fromkeys(WEIGHTS, 0)
    seen = np.zeros(int(key_count), np.int16)
    total = batches = 0
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of the process which started this one, else
    before = memory_of("VmRSS")
    while (end := stream.advance(position, limit, until)) != position:
        for group in stream.groups(position, end):
            for batch in stream.read_group(group):
                kinds = np.asarray(batch.column("_ROW_KIND").to_numpy(zero_copy_only=False), dtype=object)
                keys, values = batch.column("k").to_numpy(), batch.column("v").to_numpy()
                for kind, weight in WEIGHTS.items():
                    chosen = kinds == kind
                    by_kind[kind] += int(chosen.sum())
                    np.add.at(seen, keys[chosen], weight)
                    total += weight * int(values[chosen].sum())
        position = stream.position(json.loads(json.dumps(end.to_document())))
        batches += 1
    memory = memory_of("VmHWM") - before
    once, other = int((seen == 1).sum()), int(((seen != 1) & (seen != 0)).sum())
    counts = {"by_kind": by_kind, "total": total, "once": once, "other": other, "batches": batches, "memory": memory}
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
