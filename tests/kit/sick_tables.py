"""Tables of which something is wrong, by what `freshet doctor` calls it, made by what users call; and healthy ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.commit import change_fit, snapshot_commit
from freshet.storage.io.env import Env
from freshet.storage.write.task_writer import TaskWriter

ENGINES = "readers that do not merge"
KEEPS_FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}


class Maker:
    """Makes tables of one warehouse, by a clock that can be put forward."""

    def __init__(self, catalog: Catalog, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
        self.env = env
        self.catalog = catalog
        self.monkeypatch = monkeypatch

    def table(self, name: str, options: Mapping[str, str] | None = None, *, keys: Sequence[str] = ("id",)) -> Table:
        """A table called after the situation."""
        return self.catalog.create_table(
            f"shop.{name.replace(' ', '_')}",
            schema={"id": "INT", "part": "INT", "v": "STRING"},
            primary_keys=list(keys),
            options={"bucket": "1" if keys else "-1"} | dict(options or {}),
        )


def written(table: Table, commits: int, *, rows: int = 20, chars: int = 4) -> Table:
    """Rows that no encoding makes small."""
    random = Random(7)
    with table.writer("writer") as writer:
        for _ in range(commits):
            writer.write([{"id": key, "part": key % 2, "v": random.randbytes(chars // 2).hex()} for key in range(rows)])
            writer.commit()
    return table


def healthy(make: Maker, name: str) -> Table:
    return written(make.table(name), 1)


def compacted(make: Maker, name: str) -> Table:
    table = written(make.table(name, {"changelog-producer": "lookup"}), 7)
    table.compact()
    return table


def empty(make: Maker, name: str) -> Table:
    return make.table(name)


def a_few_appends(make: Maker, name: str) -> Table:
    return written(make.table(name, keys=()), 3)


def dynamic_buckets(make: Maker, name: str) -> Table:
    return written(make.table(name, {"bucket": "-1"}), 6)


def postponed_buckets(make: Maker, name: str) -> Table:
    table = written(make.table(name, {"bucket": "-2"}), 6)
    table.compact()
    return table


def first_rows(make: Maker, name: str) -> Table:
    return written(make.table(name, {"merge-engine": "first-row"}), 6)


def a_compactor_apart(make: Maker, name: str) -> Table:
    """It has just been there, and is to come again."""
    table = written(make.table(name, {"write-only": "true", "changelog-producer": "lookup"}), 6)
    table.compact()
    return written(table, 2)


def a_reader_that_keeps_up(make: Maker, name: str) -> Table:
    table = written(make.table(name, KEEPS_FEW), 6)
    table.reset_consumer("reader", table.snapshots()[-1].id + 1)
    return table


def tagged_with_a_branch(make: Maker, name: str) -> Table:
    table = written(make.table(name, KEEPS_FEW), 1)
    table.tags.create("old")
    table.branches.create("side", from_tag="old")
    return written(table, 6)


def changelog_not_made(make: Maker, name: str) -> Table:
    return written(make.table(name, {"changelog-producer": "lookup", "write-only": "true"}), 6)


def no_compactor(make: Maker, name: str) -> Table:
    return written(make.table(name, {"write-only": "true"}), 6)


def reader_behind_retention(make: Maker, name: str) -> Table:
    table = written(make.table(name), 4)
    table.compact()
    table.expire_snapshots(retain_max=1)
    table.reset_consumer("reader", 1)
    return table


def expiry_held(make: Maker, name: str) -> Table:
    table = make.table(name, KEEPS_FEW)
    table.reset_consumer("reader", 1)
    written(table, 6)
    table.compact()
    return table


def level_0_full(make: Maker, name: str) -> Table:
    table = written(make.table(name, {"write-only": "true"}), 2)
    table.compact()
    return written(table, 10)


def buckets_too_small(make: Maker, name: str) -> Table:
    return written(make.table(name, {"bucket": "16"}), 1)


def buckets_too_large(make: Maker, name: str) -> Table:
    return written(make.table(name, {"target-file-size": "2 kb"}), 1, rows=400, chars=400)


def buckets_skewed(make: Maker, name: str) -> Table:
    options = {"bucket": "4", "bucket-key": "part", "target-file-size": "32 kb"}
    table = make.table(name, options, keys=("id", "part"))
    random = Random(7)
    with table.writer("writer") as writer:
        writer.write([{"id": key, "part": 0, "v": random.randbytes(100).hex()} for key in range(400)])
        writer.commit()
    return table


def small_files(make: Maker, name: str) -> Table:
    return written(make.table(name, {"compaction.min.file-num": "100"}, keys=()), 24)


def overlapping_files(make: Maker, name: str) -> Table:
    """Two full compactions that do not know of each other, as programs without our checks commit them."""
    table, made = make.table(name), []
    for text in ("first", "second"):
        writer = TaskWriter(table.store, base_snapshot=None, parallelism=1)
        writer.write(pa.table({"id": range(20), "part": range(20), "v": [text] * 20}, schema=table.arrow_schema))
        writer.compact(full=True)
        made.append(writer.prepare_commit(0))
        writer.close()
    with make.monkeypatch.context() as unchecked:
        unchecked.setattr(Env, "checks_claims", False)
        unchecked.setattr(change_fit, "find_conflicts", lambda *_, **__: [])
        unchecked.setattr(snapshot_commit, "outnumbered_buckets", lambda *_: frozenset())
        for number, messages in enumerate(made):
            table.engine.committer(f"u{number}").commit(0, messages)
    return table


def statistics_missing(make: Maker, name: str) -> Table:
    return written(make.table(name, {"metadata.stats-mode": "none"}), 1)


def options_without_effect(make: Maker, name: str) -> Table:
    return written(make.table(name, {"write-buffer-for-append": "true"}, keys=()), 1)


def clocks_differ(make: Maker, name: str) -> Table:
    table = written(make.table(name), 1)
    with make.monkeypatch.context() as patch:
        patch.setattr(make.env, "now_ms", lambda: Env.now_ms(make.env) + 60_000)
        with make.catalog.table(table.name).writer("other") as writer:
            writer.write([{"id": 1, "part": 1, "v": "a"}])
            writer.commit()
    table.compact()
    return table


def readers_that_do_not_merge(make: Maker, name: str) -> Table:
    return written(make.table(name), 2)


MADE: dict[str, Callable[[Maker, str], Table]] = {
    "changelog not made": changelog_not_made,
    "no compactor": no_compactor,
    "reader behind retention": reader_behind_retention,
    "expiry held back": expiry_held,
    "level 0 full": level_0_full,
    "buckets too small": buckets_too_small,
    "buckets too large": buckets_too_large,
    "buckets skewed": buckets_skewed,
    "small files": small_files,
    "overlapping levels": overlapping_files,
    "statistics missing": statistics_missing,
    "options without effect": options_without_effect,
    "clocks differ": clocks_differ,
    ENGINES: readers_that_do_not_merge,
}
WELL = {
    each.__name__: each
    for each in (
        healthy,
        compacted,
        empty,
        a_few_appends,
        dynamic_buckets,
        postponed_buckets,
        first_rows,
        a_compactor_apart,
        a_reader_that_keeps_up,
        tagged_with_a_branch,
    )
}


def all_made(make: Maker) -> dict[str, set[str]]:
    """By table what is to be found, but for `ENGINES`, which may come with anything."""
    return {situation(make, name).name: {name} & MADE.keys() for name, situation in {**MADE, **WELL}.items()}
