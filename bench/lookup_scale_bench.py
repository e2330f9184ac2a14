"""W4 at scale: batches of 10 K random keys with lookup into 100 M rows, beside 1 M rows in as many buckets.

Both tables have 16 buckets and are compacted in full before, by a process that keeps no lookup stores.

| figure | what |
|---|---|
| cold machine | no stores: each batch until the last of them is there, which are built in the background meanwhile |
| restart | a process that finds all stores: its first batches, the slowest of all, the median |
| compacted here | the same where the compaction in full has made the stores as it wrote the files |
| resident | the process behind its last batch, mapped pages of stores included |
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.lookup_bench import Batch, make_table, run
from bench.measure import report
from bench.results import Results
from freshet.storage.catalog import Catalog

ROWS: Final = 100_000_000
FEW_ROWS: Final = 1_000_000
BUCKETS: Final = 16
COLD_BATCHES: Final = 60
BATCHES: Final = 100
WARM_UP_BATCHES: Final = 5
RATIO_MAX: Final = 1.3


def lookups_at_scale(results: Results, folder: Path, factor: float) -> None:
    """The whole part."""
    places = {rows: folder / f"scale-{rows}" for rows in (FEW_ROWS, int(ROWS * factor))}
    for rows, place in places.items():
        make_table(place, rows, **{"bucket": BUCKETS, "lookup.cache-max-disk-size": 0})
    for kind in ("mapped", "rocksdb"):
        medians = []
        for rows, place in places.items():
            medians.append(_one_table(results, place, rows, kind))
        ratio = medians[1] / medians[0]
        _note(results, f"W4 at scale, {kind}, large to small", f"{ratio:.2f} (at most {RATIO_MAX})")
    for place in places.values():
        shutil.rmtree(place)


def _one_table(results: Results, place: Path, rows: int, kind: str) -> float:
    """The median of the batches behind the first few, in seconds."""
    cache = place / f"cache-{kind}"
    options = (f"lookup.cache.store={kind}", f"lookup.cache-dir={cache}", "lookup.cache-max-disk-size=1 tb")
    name = f"W4 {rows:,} rows, {BUCKETS} buckets, {kind}"
    cold = run(place, rows, COLD_BATCHES, *options, seed=1)
    last = max((number for number, batch in enumerate(cold) if batch.get("by_reading")), default=-1)
    text = f"{_seconds(cold[: last + 1])}; then at most {_seconds([max(cold[last + 1 :], key=_took)])}"
    _note(results, f"{name}, cold machine", f"{text}; all stores after {cold[last]['ended'] if last >= 0 else 0:.0f} s")
    warm = run(place, rows, BATCHES, *options, seed=2)
    _note_warm(results, f"{name}, restart", warm)
    shutil.rmtree(cache)
    Catalog(str(place)).table("bench.t").with_options(dict(option.split("=") for option in options)).compact(full=True)
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    again = run(place, rows, BATCHES, *options, seed=3)
    _note_warm(results, f"{name}, compacted here", again)
    _note(results, f"{name}, stores", f"{size / 1e6:,.0f} MB")
    shutil.rmtree(cache)
    return statistics.median(_took(batch) for batch in warm[WARM_UP_BATCHES:])


def _note_warm(results: Results, name: str, batches: Sequence[Batch]) -> None:
    median = statistics.median(_took(batch) for batch in batches[WARM_UP_BATCHES:])
    slowest = max(_took(batch) for batch in batches)
    resident = batches[-1]["resident_bytes"] / 1e6
    text = f"{_seconds(batches[:2])}; median {1000 * median:.0f} ms, slowest {slowest:.2f} s"
    _note(results, name, f"{text}; {resident:,.0f} MB resident")


def _note(results: Results, name: str, text: str) -> None:
    results.note(name, text)
    report(f"{name}: {text}")


def _seconds(batches: Sequence[Batch]) -> str:
    return ", ".join(f"{_took(batch):.2f} s" for batch in batches) or "none"


def _took(batch: Batch) -> float:
    return float(batch["seconds"])
