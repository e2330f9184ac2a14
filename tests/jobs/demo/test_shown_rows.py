"""What the demo makes of the rows that its readers were shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from freshet.jobs.demo.reader import SEEN_COLUMN, SentChanges, ShownRowsError, emitted_twice, folded, latencies
from freshet.storage.model.row_kind import ROW_KIND_COLUMN


def _shown(text: str) -> pa.Table:
    """`+I 1 10 | -U 1 10`: kind, key, change; each is seen 1 s after the moment 0, the next 1 s later, …"""
    parts = [part.split() for part in text.split("|")]
    columns = {
        "order_id": [int(part[1]) for part in parts],
        "changed": [int(part[2]) for part in parts],
        ROW_KIND_COLUMN: [part[0] for part in parts],
        SEEN_COLUMN: [1_000_000 * (place + 1) for place in range(len(parts))],
    }
    return pa.table(columns)


def test_folded() -> None:
    held = folded(_shown("+I 1 10 | +I 2 20 | -U 1 10 | +U 1 11 | -D 2 20 | +I 3 30"), "order_id")
    assert held == {1: {"order_id": 1, "changed": 11}, 3: {"order_id": 3, "changed": 30}}


def test_what_is_retracted_folds_away() -> None:
    text = "+I 1 10 | -U 1 10 | +U 1 11 | +I 2 20 | -D 2 20 | -U 1 11 | +U 1 10"
    assert folded(_shown(text), "order_id") == {1: {"order_id": 1, "changed": 10}}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("+I 1 10 | +I 1 11", id="an insert upon a row"),
        pytest.param("-U 1 10", id="an update of nothing"),
        pytest.param("+I 1 10 | -U 1 9", id="an update of another row"),
        pytest.param("+I 1 10 | +U 1 11", id="an update without the row before it"),
    ],
)
def test_rows_that_do_not_fit_are_reported(text: str) -> None:
    with pytest.raises(ShownRowsError, match="comes upon"):
        folded(_shown(text), "order_id")


def test_latencies_count_from_the_wave_that_sent_a_change() -> None:
    waves = [SentChanges(10, 0), SentChanges(20, 500_000)]
    sent, seconds = latencies(_shown("+I 1 10 | -U 1 10 | +U 1 11 | +I 2 20"), waves)
    assert sent.tolist() == [0, 500_000, 500_000]
    assert seconds.tolist() == [1.0, 2.5, 3.5]


def test_orders_that_were_emitted_twice() -> None:
    speculative = _shown("+I 1 10 | +I 2 20 | -D 2 20 | +I 2 21 | +I 3 30 | -D 3 30")
    committed = _shown("+I 1 10 | +I 2 21")
    assert emitted_twice(speculative, committed, "order_id") == [2, 3]
