"""Overwrites and rollbacks as streams read them. In dynamic buckets they assign keys anew: a row is taken away where it
was before the one in another bucket is added, also where two states are compared."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import OvertakenError
from freshet.storage.model.snapshot_walk import StreamLimit

Rows = dict[int, int]


def folded(changes: Iterable[dict[str, Any]], held: Rows) -> Rows:
    """The rows after changes, each of which fits."""
    held = dict(held)
    for change in changes:
        if change["_ROW_KIND"] in ("+I", "+U"):
            assert change["id"] not in held or change["_ROW_KIND"] == "+U", change
            held[change["id"]] = change["n"]
        else:
            assert held.pop(change["id"]) == change["n"], change
    return held


def rows(table: Table, **when: Any) -> Rows:
    return {row["id"]: row["n"] for row in table.scan(**when).to_arrow().to_pylist()}


def made(folder: Path) -> Table:
    """Each commit assigns ten keys to buckets of two, in another order; the last one is a rollback to the first."""
    table = Catalog(str(folder)).create_table(
        "db.t",
        schema={"id": "INT NOT NULL", "n": "INT"},
        primary_keys=["id"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "2", "streaming-read-overwrite": "true"},
    )
    table.append([{"id": number, "n": 1} for number in range(10)])
    table.overwrite([{"id": number, "n": 2} for number in reversed(range(3, 12))])
    table.overwrite([{"id": number, "n": 3} for number in (7, 2, 9, 4, 0)])
    table.rollback(1)
    return table


def test_keys_change_their_buckets(tmp_path: Path) -> None:
    table = made(tmp_path)
    found = [
        {key.as_py(): split.bucket for split in scan.plan() for batch in scan.read_split(split) for key in batch["id"]}
        for scan in (table.scan(snapshot_id=each.id) for each in table.snapshots())
    ]
    assert any(found[0][key] != found[1][key] for key in found[0].keys() & found[1].keys())


def test_a_stream_follows_overwrites_and_rollbacks(tmp_path: Path) -> None:
    table = made(tmp_path)
    request = StreamRequest(from_snapshot=1, upserts=True)
    stream = table.engine.split_stream(request)
    position, held = stream.first(), Rows()
    for snapshot in table.snapshots():
        end = stream.advance(position, StreamLimit(snapshots=1))
        held = folded((row for batch in stream.read_between(position, end) for row in batch.to_pylist()), held)
        assert held == rows(table, snapshot_id=snapshot.id)
        position = end


def test_readers_side_by_side_do_not_share_a_key(tmp_path: Path) -> None:
    stream = made(tmp_path).engine.split_stream(StreamRequest(from_snapshot=1, upserts=True))
    assert len(stream.groups(stream.first(), stream.latest())) == 1


def test_the_difference_of_two_states(tmp_path: Path) -> None:
    table = made(tmp_path)
    ids = [snapshot.id for snapshot in table.snapshots()]
    for old, new in pairwise(ids):
        changes = table.changes_between(old, new, mode="diff").to_arrow().to_pylist()
        kept = [change for change in changes if change["_ROW_KIND"] != "-U"]
        assert folded(kept, rows(table, snapshot_id=old)) == rows(table, snapshot_id=new)


def test_two_states_of_a_bucket_without_a_common_key(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"id": "INT NOT NULL", "n": "INT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    table.append([{"id": 1, "n": 1}, {"id": 3, "n": 1}])
    table.overwrite([{"id": 2, "n": 1}])
    changes = table.changes_between(1, 2, mode="diff").to_arrow().to_pylist()
    assert folded(changes, {1: 1, 3: 1}) == {2: 1}


@pytest.mark.parametrize("is_rollback", [False, True])
def test_what_an_overwrite_took_away_has_expired(tmp_path: Path, is_rollback: bool) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"id": "INT NOT NULL", "n": "INT"},
        primary_keys=["id"],
        options={"bucket": "1", "streaming-read-overwrite": "true"},
    )
    table.append([{"id": 1, "n": 1}])
    table.overwrite([{"id": 2, "n": 1}])
    if is_rollback:
        table.rollback(1)
    else:
        table.overwrite([{"id": 3, "n": 1}])
    stream = table.stream(from_snapshot=3, upserts=True, max_wait_s=0)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(OvertakenError, match=r"took rows away whose files have expired .* read the table in full"):
        next(stream)
