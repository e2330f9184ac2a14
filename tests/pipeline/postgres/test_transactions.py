"""Which transactions a snapshot holds: a table of truth, and PostgreSQL's own rule, id by id."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.postgres.transactions import TransactionSnapshot
from tests.kit.postgres_source import PostgresSource

EPOCH = 2**32


@pytest.mark.parametrize(
    ("snapshot", "transaction", "holds"),
    [
        ("10:20:10,14", 9, True),  # over before the oldest that runs
        ("10:20:10,14", 10, False),  # runs: its commit may be in the log already
        ("10:20:10,14", 11, True),
        ("10:20:10,14", 14, False),
        ("10:20:10,14", 19, True),
        ("10:20:10,14", 20, False),  # begins after it
        ("10:20:10,14", 2**31 - 1, False),
        ("20:20:", 19, True),
        ("20:20:", 20, False),
        # ids of the stream have 32 bits, those of the text 64
        (f"{EPOCH + 10}:{EPOCH + 20}:{EPOCH + 14}", 13, True),
        (f"{EPOCH + 10}:{EPOCH + 20}:{EPOCH + 14}", 14, False),
        (f"{EPOCH + 10}:{EPOCH + 20}:{EPOCH + 14}", 20, False),
        (f"{EPOCH + 10}:{EPOCH + 20}:{EPOCH + 14}", EPOCH - 5, True),  # of the epoch before
        (f"{EPOCH - 10}:{EPOCH - 5}:{EPOCH - 7}", EPOCH - 8, True),
        (f"{EPOCH - 10}:{EPOCH - 5}:{EPOCH - 7}", EPOCH - 7, False),
        (f"{EPOCH - 10}:{EPOCH - 5}:{EPOCH - 7}", 3, False),  # of the next epoch
        (f"{5 * EPOCH - 10}:{5 * EPOCH + 3}:{5 * EPOCH - 7}", EPOCH - 7, False),
        (f"{5 * EPOCH - 10}:{5 * EPOCH + 3}:{5 * EPOCH - 7}", EPOCH - 6, True),
        (f"{5 * EPOCH - 10}:{5 * EPOCH + 3}:{5 * EPOCH - 7}", 5 * EPOCH - 7, False),  # ids of 64 bits as they are
    ],
)
def test_a_snapshot_holds(snapshot: str, transaction: int, holds: bool) -> None:
    assert TransactionSnapshot.parse(snapshot).holds(np.array([transaction])).tolist() == [holds]
    assert str(TransactionSnapshot.parse(snapshot)) == snapshot


@given(st.data())
def test_it_holds_what_postgres_holds(data: st.DataObject) -> None:
    """The oracle walks through a history: transactions begin, some end, and the snapshot is taken."""
    first = data.draw(st.integers(3, 6 * EPOCH))
    count = data.draw(st.integers(1, 12))
    over = {first + n: data.draw(st.booleans()) for n in range(count)}
    running = tuple(each for each, ended in over.items() if not ended)
    snapshot = TransactionSnapshot(min(running, default=first + count), first + count, running)
    later = {first + count + n: False for n in range(3)}
    earlier = {max(first - n, 1): True for n in (1, 2, 1000)}
    ids = {**earlier, **over, **later}
    cut = np.array([each % EPOCH for each in ids], np.uint32)
    assert snapshot.holds(cut).tolist() == list(ids.values())


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3,", "a:b:c", "1:2:3;4"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no snapshot: PostgreSQL writes xmin:xmax:xip"):
        TransactionSnapshot.parse(text)


def test_the_server_agrees(postgres: PostgresSource) -> None:
    """With savepoints, whose ids are not in the text."""
    postgres.run("CREATE TABLE t (id int)")
    with postgres.connect() as one, postgres.connect() as other, postgres.connect() as reader:
        one.execute("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2)")
        other.execute("INSERT INTO t VALUES (3)")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        [(text,)] = reader.execute("SELECT txid_current_snapshot()::text").fetchall()
        one.execute("COMMIT")
        found = reader.execute("SELECT id FROM t").fetchall()
        every = other.execute("SELECT xmin::text::bigint, id FROM t WHERE id <> 2").fetchall()
    snapshot = TransactionSnapshot.parse(text)
    held = [(number,) for transaction, number in every if snapshot.holds(np.array([transaction]))[0]]
    assert held == found == [(3,)]
