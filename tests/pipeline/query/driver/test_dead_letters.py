"""A table of dead letters that is changed while a query runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog, ChangeType, DropColumn, RenameColumn, SetOption
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.dead_letters import DeadLetterCommit, open_dead_letters


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (DropColumn("raw_value"), "it has no column raw_value any more"),
        (RenameColumn("raw_value", "payload"), "it has no column raw_value any more"),
        (DropColumn("reason"), "it has no column reason any more"),
        (ChangeType("kafka_partition", "BIGINT"), "column kafka_partition is BIGINT"),
        (AddColumn("note", "STRING"), None),
        (SetOption("snapshot.num-retained.max", "20"), None),
    ],
)
def test_letters_are_not_committed_to_other_columns(tmp_path: Path, change: Any, said: str | None) -> None:
    """They would be there without the record, and counted as kept."""
    catalog = Catalog(tmp_path)
    table = open_dead_letters(catalog, "db.dead")
    letters = DeadLetterCommit(table, "pipe")
    letter = {"pipeline": "pipe", "reason": "bad", "raw_value": b"{", "micro_batch_id": 0}
    for number in range(2):
        with closing(table.engine.task_writer(base_snapshot_id=None)) as writer:
            writer.write(pa.Table.from_pylist([letter]))
            messages = writer.prepare_commit(number)
        if number == 0:
            letters.commit(BatchIdentity(0, "q", None), messages)
            table.alter(change)
        elif said is None:
            letters.commit(BatchIdentity(1, "q", None), messages)
        else:
            with pytest.raises(InvalidRequestError, match=f"db.dead was changed while .*: {said}.*dead_letters.*again"):
                letters.commit(BatchIdentity(1, "q", None), messages)
    assert catalog.table("db.dead").scan(["pipeline"]).to_arrow().num_rows == (2 if said is None else 1)
